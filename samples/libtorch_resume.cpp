// libtorch_resume.cpp - a trainer on libtorch that keeps its checkpoints with this library.
//
//     libtorch_resume [--resume FILE | --resume MODULE.pt OPTIMIZER.pt] [--map RULES] [--steps N]
//                     [--save FILE] [--torch-save MODULE.pt OPTIMIZER.pt]
//
// FILE is a checkpoint of its own (--save), or one that PyTorch wrote in Python: {"model": state_dict, "optimizer":
// state_dict, "step": n}. Two files are what this trainer wrote before it knew the library, with torch::save. Whichever it
// is, the steps that follow are those of a run that never stopped, bit for bit. It is built against the libtorch inside
// the pip package (tests/interop/libtorch_peer.py shows how), so `make` does not build it.
#include <ckpt/train.h>
#include <torch/torch.h>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

template <auto Free> struct Deleter {
    template <typename T> void operator()(T *p) const
    {
        Free(p);
    }
};
using State = std::unique_ptr<ckpt_state, Deleter<ckpt_state_free>>;
using Report = std::unique_ptr<ckpt_report, Deleter<ckpt_report_free>>;

// Turns a negative status into an exception that says what the library said.
template <typename Call> void checked(Call call)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (call(&err) < 0)
        throw std::runtime_error(std::string(err.object) + (err.object[0] ? ": " : "") + err.message);
}

// ---- the training: any libtorch module and optimizer would do

struct Net : torch::nn::Module {
    torch::nn::Linear fc1{ nullptr }, fc2{ nullptr };
    torch::nn::BatchNorm1d bn{ nullptr };
    Net()
    {
        fc1 = register_module("fc1", torch::nn::Linear(6, 8));
        bn = register_module("bn", torch::nn::BatchNorm1d(8));
        fc2 = register_module("fc2", torch::nn::Linear(8, 3));
    }
    torch::Tensor forward(torch::Tensor x)
    {
        return fc2(torch::tanh(bn(fc1(x))));
    }
};

// The batch of a step is a function of its number: the run is the same wherever it begins.
torch::Tensor numbers(std::int64_t step, std::int64_t columns, std::int64_t modulus)
{
    auto i = torch::arange(5 * columns, torch::kInt64).view({ 5, columns });
    return ((i * 7 + step * 3).remainder(modulus) - modulus / 2).to(torch::kFloat32) / 4;
}

struct Trainer {
    std::shared_ptr<Net> net = std::make_shared<Net>();
    std::vector<std::vector<std::string>> names; // of the optimizer's parameters, group by group
    std::unique_ptr<torch::optim::AdamW> optimizer;
    std::int64_t done = 0;

    Trainer()
    {
        std::vector<torch::Tensor> matrices, vectors;
        names.resize(2);
        for (auto &p : net->named_parameters()) {
            (p.value().dim() > 1 ? matrices : vectors).push_back(p.value());
            names[p.value().dim() > 1 ? 0 : 1].push_back(p.key());
        }
        auto options = [](double decay) {
            return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(1e-2).weight_decay(decay));
        };
        std::vector<torch::optim::OptimizerParamGroup> groups;
        groups.emplace_back(matrices, options(0.1));
        groups.emplace_back(vectors, options(0.0));
        optimizer = std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(1e-2));
    }

    // AdamW makes its state at the first step; to be filled it must be there before.
    torch::optim::AdamWParamState &state_of(const torch::Tensor &p)
    {
        auto &slot = optimizer->state()[p.unsafeGetTensorImpl()];
        if (!slot) {
            auto fresh = std::make_unique<torch::optim::AdamWParamState>();
            fresh->step(0);
            fresh->exp_avg(torch::zeros_like(p));
            fresh->exp_avg_sq(torch::zeros_like(p));
            slot = std::move(fresh);
        }
        return static_cast<torch::optim::AdamWParamState &>(*slot);
    }

    void train_step()
    {
        optimizer->zero_grad();
        auto loss = torch::mse_loss(net->forward(numbers(done, 6, 11)), numbers(done, 3, 9));
        loss.backward();
        optimizer->step();
        double value = loss.item<double>();
        std::printf("step %lld loss %.9g (%a)\n", static_cast<long long>(++done), value, value);
    }
};

// ---- what the library is told of it

ckpt_dtype dtype_of(const torch::Tensor &t)
{
    switch (t.scalar_type()) {
    case torch::kFloat32: return CKPT_F32;
    case torch::kFloat64: return CKPT_F64;
    case torch::kBFloat16: return CKPT_BF16;
    case torch::kFloat16: return CKPT_F16;
    case torch::kInt64: return CKPT_I64;
    default: throw std::runtime_error("a tensor of a dtype that this sample does not know");
    }
}

// The tensor's own memory, on whatever device it is: libtorch keeps it where it is, so the pointer stays good.
void bind_tensor(ckpt_state *state, const char *name, const std::string &param, ckpt_role role, const torch::Tensor &t)
{
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    desc.name = name;
    desc.param = param.empty() ? nullptr : param.c_str();
    desc.role = role;
    desc.dtype = dtype_of(t);
    desc.ndim = static_cast<std::uint32_t>(t.dim());
    desc.shape = t.sizes().data();
    desc.strides = t.strides().data();
    desc.data = t.data_ptr();
    checked([&](ckpt_error *err) { return ckpt_state_tensor(state, &desc, err); });
}

void bind_model(ckpt_state *state, Trainer &trainer)
{
    for (auto &p : trainer.net->named_parameters())
        bind_tensor(state, p.key().c_str(), "", CKPT_ROLE_PARAM, p.value());
    for (auto &b : trainer.net->named_buffers())
        bind_tensor(state, b.key().c_str(), "", CKPT_ROLE_BUFFER, b.value());
}

void bind_group(ckpt_state *state, const std::string &name, const std::vector<std::string> &params,
                torch::optim::AdamWOptions &options)
{
    std::vector<const char *> list;
    for (auto &param : params)
        list.push_back(param.c_str());
    const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &options.lr() },
                                  { "betas.0", CKPT_SCALAR_F64, &std::get<0>(options.betas()) },
                                  { "betas.1", CKPT_SCALAR_F64, &std::get<1>(options.betas()) },
                                  { "eps", CKPT_SCALAR_F64, &options.eps() },
                                  { "weight_decay", CKPT_SCALAR_F64, &options.weight_decay() } };
    ckpt_group_desc desc = CKPT_GROUP_DESC_INIT;
    desc.name = name.c_str();
    desc.params = list.data();
    desc.param_count = list.size();
    desc.hypers = hypers;
    desc.hyper_count = sizeof hypers / sizeof *hypers;
    checked([&](ckpt_error *err) { return ckpt_state_group(state, &desc, err); });
}

// `steps` gets libtorch's own counters: they are plain integers beside the moments.
void bind_optimizer(ckpt_state *state, Trainer &trainer)
{
    auto named = trainer.net->named_parameters();
    for (std::size_t g = 0; g < trainer.names.size(); g++) {
        for (auto &name : trainer.names[g]) {
            auto &of = trainer.state_of(named[name]);
            bind_tensor(state, nullptr, name, CKPT_ROLE_EXP_AVG, of.exp_avg());
            bind_tensor(state, nullptr, name, CKPT_ROLE_EXP_AVG_SQ, of.exp_avg_sq());
            checked([&](ckpt_error *err) {
                return ckpt_state_i64(state, ("optimizer." + name + ".step").c_str(), &of.step(), err);
            });
        }
        auto &options = static_cast<torch::optim::AdamWOptions &>(trainer.optimizer->param_groups()[g].options());
        bind_group(state, std::to_string(g), trainer.names[g], options);
    }
    checked([&](ckpt_error *err) { return ckpt_state_i64(state, "step", &trainer.done, err); });
}

State fresh()
{
    State state(ckpt_state_new());
    if (!state)
        throw std::bad_alloc();
    return state;
}

State bind_all(Trainer &trainer)
{
    State state = fresh();
    bind_model(state.get(), trainer);
    bind_optimizer(state.get(), trainer);
    return state;
}

void restore(ckpt_state *state, const Trainer &trainer, const std::string &path, const char *map)
{
    // Files of torch number the optimizer's parameters (libtorch's name dead addresses): what they are called.
    std::vector<const char *> order;
    for (auto &group : trainer.names)
        for (auto &name : group)
            order.push_back(name.c_str());
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.map_location = map;
    options.param_names = order.data();
    options.param_name_count = order.size();
    options.allow_unexpected = true; // amsgrad, foreach, ... of PyTorch's groups
    Report report(ckpt_report_new());
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = ckpt_restore(state, path.c_str(), &options, report.get(), &err);
    for (std::size_t i = 0; report && i < ckpt_report_count(report.get()); i++) {
        const ckpt_finding *f = ckpt_report_get(report.get(), i);
        if (f->severity == CKPT_SEVERITY_WARNING)
            std::fprintf(stderr, "warning: %s: %s%s%s\n", f->code, f->tensor, *f->tensor ? ": " : "", f->message);
    }
    if (status < 0)
        throw std::runtime_error(std::string(err.object) + ": " + err.message);
}

// What torch::save wrote: a module in one file, its optimizer in the other, which therefore need not have the model's
// tensors; nor has either of them a step of the run, so that it is read off the counters beside the moments.
void restore_old(Trainer &trainer, const std::string &module, const std::string &optimizer, const char *map)
{
    State model = fresh(), all = bind_all(trainer);
    bind_model(model.get(), trainer);
    restore(model.get(), trainer, module, map);
    for (std::size_t i = 0; i < ckpt_state_tensor_count(model.get()); i++)
        checked([&](ckpt_error *err) {
            return ckpt_state_optional(all.get(), ckpt_state_tensor_name(model.get(), i), err);
        });
    restore(all.get(), trainer, optimizer, map);
}

struct Arguments {
    std::vector<std::string> resume, torch_save;
    std::string save, map = "cpu";
    long long steps = 5;
};

bool parse(int argc, char **argv, Arguments &a)
{
    for (int i = 1; i < argc; i++) {
        std::string option = argv[i];
        std::vector<std::string> values;
        while (i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0)
            values.push_back(argv[++i]);
        if (option == "--resume" && (values.size() == 1 || values.size() == 2))
            a.resume = values;
        else if (option == "--torch-save" && values.size() == 2)
            a.torch_save = values;
        else if (option == "--save" && values.size() == 1)
            a.save = values[0];
        else if (option == "--map" && values.size() == 1)
            a.map = values[0];
        else if (option == "--steps" && values.size() == 1)
            a.steps = std::stoll(values[0]);
        else
            return false;
    }
    return true;
}

int run(const Arguments &a)
{
    torch::manual_seed(11);
    torch::set_num_threads(1);
    Trainer trainer;
    State state = bind_all(trainer);
    if (a.resume.size() == 1)
        restore(state.get(), trainer, a.resume[0], a.map.c_str());
    else if (a.resume.size() == 2)
        restore_old(trainer, a.resume[0], a.resume[1], a.map.c_str());
    for (long long i = 0; i < a.steps; i++)
        trainer.train_step();
    if (!a.save.empty())
        checked([&](ckpt_error *err) { return ckpt_save(state.get(), a.save.c_str(), nullptr, err); });
    if (!a.torch_save.empty()) {
        torch::save(trainer.net, a.torch_save[0]);
        torch::save(*trainer.optimizer, a.torch_save[1]);
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    Arguments arguments;
    try {
        if (parse(argc, argv, arguments))
            return run(arguments);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "libtorch_resume: %s\n", e.what());
        return 1;
    }
    std::fputs("usage: libtorch_resume [--resume FILE | --resume MODULE.pt OPTIMIZER.pt] [--map RULES] [--steps N]\n"
               "                       [--save FILE] [--torch-save MODULE.pt OPTIMIZER.pt]\n",
               stderr);
    return 2;
}
