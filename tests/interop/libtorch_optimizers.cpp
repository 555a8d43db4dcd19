// libtorch_optimizers.cpp - one of libtorch's six optimizers, over four parameters in up to three groups of other settings.
//   libtorch_optimizers KIND save FILE [STEPS]
// takes STEPS (3), writes the optimizer to FILE, and with the parameters p0 to p3 as a model's to FILE.whole; prints the parameters,
// takes three more steps and prints them again. Each line is a parameter's elements, exactly (%a).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <torch/torch.h>

using torch::Tensor;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;

static std::vector<Tensor> make_parameters()
{
    std::vector<Tensor> all;
    const int64_t rows[] = {3, 4, 2, 5}, columns[] = {4, 1, 6, 2};
    for (int i = 0; i < 4; i++)
        all.push_back((torch::arange(rows[i] * columns[i], torch::kFloat64).view({rows[i], columns[i]}) / 10 - 0.3 * i)
                          .requires_grad_());
    return all;
}

static Tensor loss_of(const std::vector<Tensor> &all)
{
    Tensor loss = torch::zeros({}, torch::kFloat64);
    for (size_t i = 0; i < all.size(); i++)
        loss = loss + (all[i] - 0.1 * (double)(i + 1)).pow(2).sum() * (double)(i + 1) + all[i].pow(4).sum() / 8;
    return loss;
}

template <class Options> static Groups three(const std::vector<Tensor> &p, Options a, Options b, Options c)
{
    Groups groups;
    groups.emplace_back(std::vector<Tensor>{p[0], p[1]}, std::make_unique<Options>(a));
    groups.emplace_back(std::vector<Tensor>{p[2]}, std::make_unique<Options>(b));
    groups.emplace_back(std::vector<Tensor>{p[3]}, std::make_unique<Options>(c));
    return groups;
}

static std::unique_ptr<torch::optim::Optimizer> make(const std::string &kind, const std::vector<Tensor> &p)
{
    using namespace torch::optim;
    if (kind == "SGD")
        return std::make_unique<SGD>(
            three(p, SGDOptions(0.01).momentum(0.9), SGDOptions(0.02).momentum(0.8).nesterov(true), SGDOptions(0.005)),
            SGDOptions(0.01));
    if (kind == "Adam")
        return std::make_unique<Adam>(
            three(p, AdamOptions(0.01), AdamOptions(0.02).betas({0.8, 0.9}), AdamOptions(0.03).amsgrad(true)),
            AdamOptions(0.01));
    if (kind == "AdamW")
        return std::make_unique<AdamW>(
            three(p, AdamWOptions(0.01), AdamWOptions(0.02).weight_decay(0.2), AdamWOptions(0.03).amsgrad(true)),
            AdamWOptions(0.01));
    if (kind == "Adagrad")
        return std::make_unique<Adagrad>(three(p, AdagradOptions(0.1), AdagradOptions(0.2).lr_decay(0.1),
                                               AdagradOptions(0.3).initial_accumulator_value(0.5)),
                                         AdagradOptions(0.1));
    if (kind == "RMSprop")
        return std::make_unique<RMSprop>(
            three(p, RMSpropOptions(0.01), RMSpropOptions(0.02).momentum(0.9), RMSpropOptions(0.03).centered(true)),
            RMSpropOptions(0.01));
    if (kind == "LBFGS") // it takes one group; and cannot be saved before its history is full (undefined tensors in al)
        return std::make_unique<LBFGS>(p, LBFGSOptions(0.5).max_iter(3).history_size(4));
    if (kind == "LBFGS-wolfe")
        return std::make_unique<LBFGS>(p, LBFGSOptions(0.5).max_iter(3).history_size(2).line_search_fn("strong_wolfe"));
    std::fprintf(stderr, "no such optimizer\n");
    std::exit(2);
}

static void step(torch::optim::Optimizer &optimizer, const std::vector<Tensor> &all, int count)
{
    for (int i = 0; i < count; i++)
        optimizer.step([&] {
            optimizer.zero_grad();
            Tensor loss = loss_of(all);
            loss.backward();
            return loss;
        });
}

static void print(const std::vector<Tensor> &all)
{
    for (const Tensor &t : all) {
        const double *v = t.detach().data_ptr<double>();
        for (int64_t i = 0; i < t.numel(); i++)
            std::printf("%a%c", v[i], i + 1 < t.numel() ? ' ' : '\n');
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    torch::set_num_threads(1);
    std::vector<Tensor> all = make_parameters();
    auto optimizer = make(argv[1], all);
    step(*optimizer, all, argc > 4 ? std::atoi(argv[4]) : 3);
    torch::save(*optimizer, argv[3]);
    torch::serialize::OutputArchive whole, model, own;
    for (size_t i = 0; i < all.size(); i++)
        model.write("p" + std::to_string(i), all[i]);
    optimizer->save(own);
    whole.write("model", model);
    whole.write("optimizer", own);
    whole.save_to(std::string(argv[3]) + ".whole");
    print(all);
    step(*optimizer, all, 3);
    print(all);
    return 0;
}
