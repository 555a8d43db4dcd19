// truth_libtorch.cpp - a trainer on libtorch, as doctor_truth.py puts it to the test: the network and the steps of
// truth_program.py in C++. It reads jobs, one a line, from standard input ("key=value", tabs between) and answers each with
// one line of JSON. Built by truth_cpp.py against the libtorch inside the pip package.
//
//     make=PREFIX                            trains, and writes PREFIX-module.pt, PREFIX-optimizer.pt, PREFIX-both.pt
//     module=FILE optimizer=FILE both=FILE   what torch::save wrote, by torch::load or out of one archive
//     pickle=FILE model=PATH state=PATH      a file of torch.save: the dicts at these places (keys, "/" between; "-": none)
// and of the program: kind=Adam|AdamW|SGD|RMSprop|Adagrad, lr=, momentum=, nesterov=, amsgrad=, groups=2, order=swapped,
// frozen=, norm=BatchNorm, dtype=, wrap=PREFIX, map=cpu (the device argument of torch::load).
//
// torch::load gives a module or an optimizer what its own archive holds. torch::pickle_load gives values; from there the
// program is on its own, and does here what a careful one would: each parameter by name, each state by the position of its
// parameter in the groups, hyper-parameters by key; what it asks for and does not find, it reports by an exception.
#include <torch/torch.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <caffe2/serialize/inline_container.h>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

constexpr int BEFORE = 4, AFTER = 4;
using Job = std::map<std::string, std::string>;
using Named = std::vector<std::pair<std::string, torch::Tensor>>;

std::string get(const Job &job, const std::string &key, const std::string &otherwise = "")
{
    auto at = job.find(key);
    return at == job.end() ? otherwise : at->second;
}

// ---- the program

struct Net : torch::nn::Module {
    torch::nn::Linear fc1{nullptr}, fc2{nullptr};
    torch::nn::LayerNorm layer{nullptr};
    torch::nn::BatchNorm1d batch{nullptr};
    explicit Net(const Job &job)
    {
        fc1 = register_module("fc1", torch::nn::Linear(6, 8));
        if (get(job, "norm") == "BatchNorm")
            batch = register_module("norm", torch::nn::BatchNorm1d(8));
        else
            layer = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
        fc2 = register_module("fc2", torch::nn::Linear(8, 3));
        if (get(job, "dtype") == "bfloat16")
            to(torch::kBFloat16);
        else if (get(job, "dtype") == "float16")
            to(torch::kHalf);
    }
    torch::Tensor forward(torch::Tensor x)
    {
        x = fc1(x);
        return fc2(torch::tanh(batch.is_empty() ? layer(x) : batch(x)));
    }
};

torch::Tensor numbers(std::int64_t step, std::int64_t columns, std::int64_t modulus)
{
    auto n = torch::arange(5 * columns, torch::kInt64).view({5, columns});
    return ((n * 7 + step * 3).remainder(modulus) - modulus / 2).to(torch::kFloat32) / 4;
}

struct Program {
    const Job &job;
    std::shared_ptr<Net> net;
    std::vector<Named> groups; // the optimizer's parameters, group by group
    std::unique_ptr<torch::optim::Optimizer> optimizer;

    explicit Program(const Job &j) : job(j), net(std::make_shared<Net>(j))
    {
        Named pairs;
        for (auto &p : net->named_parameters())
            if (get(job, "frozen").empty() || p.key().compare(0, get(job, "frozen").size(), get(job, "frozen")) != 0)
                pairs.emplace_back(p.key(), p.value());
        if (get(job, "order") == "swapped")
            std::swap(pairs.at(1), pairs.at(3));
        groups.resize(get(job, "groups") == "2" ? 2 : 1);
        for (auto &p : pairs)
            groups[groups.size() == 2 && p.second.dim() < 2 ? 1 : 0].push_back(p);
        construct();
    }

    std::unique_ptr<torch::optim::OptimizerOptions> options(std::size_t group) const
    {
        using namespace torch::optim;
        std::string kind = get(job, "kind", "Adam");
        double lr = std::stod(get(job, "lr", "0.01")), momentum = std::stod(get(job, "momentum", "0"));
        double decay = groups.size() < 2 ? (kind == "AdamW" ? 0.01 : 0) : group == 0 ? 0.05 : 0;
        if (kind == "Adam")
            return std::make_unique<AdamOptions>(
                AdamOptions(lr).weight_decay(decay).amsgrad(get(job, "amsgrad") == "1"));
        if (kind == "AdamW")
            return std::make_unique<AdamWOptions>(
                AdamWOptions(lr).weight_decay(decay).amsgrad(get(job, "amsgrad") == "1"));
        if (kind == "SGD")
            return std::make_unique<SGDOptions>(
                SGDOptions(lr).momentum(momentum).nesterov(get(job, "nesterov") == "1").weight_decay(decay));
        if (kind == "RMSprop")
            return std::make_unique<RMSpropOptions>(RMSpropOptions(lr).momentum(momentum).weight_decay(decay));
        return std::make_unique<AdagradOptions>(AdagradOptions(lr).weight_decay(decay));
    }

    void construct()
    {
        std::vector<torch::optim::OptimizerParamGroup> all;
        for (std::size_t g = 0; g < groups.size(); g++) {
            std::vector<torch::Tensor> tensors;
            for (auto &p : groups[g])
                tensors.push_back(p.second);
            all.emplace_back(tensors, options(g));
        }
        std::string kind = get(job, "kind", "Adam");
        if (kind == "Adam")
            optimizer = std::make_unique<torch::optim::Adam>(all);
        else if (kind == "AdamW")
            optimizer = std::make_unique<torch::optim::AdamW>(all);
        else if (kind == "SGD")
            optimizer = std::make_unique<torch::optim::SGD>(all, torch::optim::SGDOptions(0.1));
        else if (kind == "RMSprop")
            optimizer = std::make_unique<torch::optim::RMSprop>(all);
        else
            optimizer = std::make_unique<torch::optim::Adagrad>(all);
    }

    std::vector<double> train(int first, int count)
    {
        std::vector<double> losses;
        auto dtype = net->parameters().at(0).scalar_type();
        for (int step = first; step < first + count; step++) {
            optimizer->zero_grad();
            auto loss =
                torch::mse_loss(net->forward(numbers(step, 6, 11).to(dtype)).to(torch::kFloat32), numbers(step, 3, 9));
            loss.backward();
            optimizer->step();
            losses.push_back(loss.item<double>());
        }
        return losses;
    }
};

// ---- a file of torch.save

torch::IValue unpickled(const Job &job)
{
    if (get(job, "map").empty()) {
        std::ifstream file(get(job, "pickle"), std::ios::binary);
        return torch::pickle_load({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    // pickle_load has no device argument; what it calls has one.
    caffe2::serialize::PyTorchStreamReader reader(get(job, "pickle"));
    return torch::jit::readArchiveAndTensors("data", "", "", std::nullopt, std::nullopt, torch::Device(get(job, "map")),
                                             reader);
}

double number(const torch::IValue &v)
{
    if (v.isTensor())
        return v.toTensor().item<double>();
    return v.isInt() ? static_cast<double>(v.toInt()) : v.isBool() ? v.toBool() : v.toDouble();
}

torch::IValue entry(const torch::IValue &dict, const torch::IValue &key)
{
    auto entries = dict.toGenericDict();
    auto at = entries.find(key);
    if (at == entries.end())
        throw std::out_of_range("there is no entry " +
                                (key.isString() ? key.toStringRef() : std::to_string(key.toInt())));
    return at->value();
}

torch::IValue at_path(torch::IValue v, const std::string &path)
{
    std::stringstream parts(path);
    for (std::string key; std::getline(parts, key, '/');) {
        if (v.isTuple())
            v = v.toTupleRef().elements().at(std::stoul(key));
        else if (v.isList())
            v = v.toListRef().at(std::stoul(key));
        else
            v = entry(v, key);
    }
    return v;
}

void take_model(Program &program, const torch::IValue &saved)
{
    torch::NoGradGuard guard;
    for (auto &p : program.net->named_parameters())
        p.value().copy_(entry(saved, get(program.job, "wrap") + p.key()).toTensor());
    for (auto &b : program.net->named_buffers())
        b.value().copy_(entry(saved, get(program.job, "wrap") + b.key()).toTensor());
}

template <typename Options> void common(Options &o, const torch::IValue &group)
{
    o.lr(number(entry(group, "lr")));
    o.weight_decay(number(entry(group, "weight_decay")));
}

template <typename Options, typename State>
std::unique_ptr<torch::optim::OptimizerParamState> adam(Options &o, const torch::IValue &group,
                                                        const torch::IValue *saved)
{
    auto betas = entry(group, "betas").toTupleRef().elements();
    common(o, group);
    o.betas({number(betas.at(0)), number(betas.at(1))});
    o.eps(number(entry(group, "eps")));
    if (group.toGenericDict().contains("amsgrad")) // as in Python, the one key that need not be there
        o.amsgrad(number(entry(group, "amsgrad")) != 0);
    if (!saved)
        return nullptr;
    auto state = std::make_unique<State>();
    state->step(static_cast<std::int64_t>(number(entry(*saved, "step"))));
    state->exp_avg(entry(*saved, "exp_avg").toTensor());
    state->exp_avg_sq(entry(*saved, "exp_avg_sq").toTensor());
    if (o.amsgrad())
        state->max_exp_avg_sq(entry(*saved, "max_exp_avg_sq").toTensor());
    return state;
}

// The options of a group, and (saved) the state of one of its parameters.
std::unique_ptr<torch::optim::OptimizerParamState> taken(const std::string &kind,
                                                         torch::optim::OptimizerOptions &options,
                                                         const torch::IValue &group, const torch::IValue *saved)
{
    using namespace torch::optim;
    if (kind == "Adam")
        return adam<AdamOptions, AdamParamState>(static_cast<AdamOptions &>(options), group, saved);
    if (kind == "AdamW")
        return adam<AdamWOptions, AdamWParamState>(static_cast<AdamWOptions &>(options), group, saved);
    if (kind == "SGD") {
        auto &o = static_cast<SGDOptions &>(options);
        common(o, group);
        o.momentum(number(entry(group, "momentum")));
        o.dampening(number(entry(group, "dampening")));
        o.nesterov(number(entry(group, "nesterov")) != 0);
        if (!saved || o.momentum() == 0)
            return nullptr;
        auto buffer = entry(*saved, "momentum_buffer");
        if (buffer.isNone())
            return nullptr;
        auto state = std::make_unique<SGDParamState>();
        state->momentum_buffer(buffer.toTensor());
        return state;
    }
    if (kind == "RMSprop") {
        auto &o = static_cast<RMSpropOptions &>(options);
        common(o, group);
        o.alpha(number(entry(group, "alpha")));
        o.eps(number(entry(group, "eps")));
        o.momentum(number(entry(group, "momentum")));
        if (!saved)
            return nullptr;
        auto state = std::make_unique<RMSpropParamState>();
        state->step(static_cast<std::int64_t>(number(entry(*saved, "step"))));
        state->square_avg(entry(*saved, "square_avg").toTensor());
        if (o.momentum() > 0)
            state->momentum_buffer(entry(*saved, "momentum_buffer").toTensor());
        return state;
    }
    auto &o = static_cast<AdagradOptions &>(options);
    common(o, group);
    o.eps(number(entry(group, "eps")));
    if (!saved)
        return nullptr;
    auto state = std::make_unique<AdagradParamState>();
    state->step(static_cast<std::int64_t>(number(entry(*saved, "step"))));
    state->sum(entry(*saved, "sum").toTensor());
    return state;
}

void take_optimizer(Program &program, const torch::IValue &saved)
{
    auto states = entry(saved, "state").toGenericDict();
    auto groups = entry(saved, "param_groups").toListRef();
    if (groups.size() != program.groups.size())
        throw std::runtime_error("the optimizer has another number of groups");
    for (std::size_t g = 0; g < groups.size(); g++) {
        auto ids = entry(groups[g], "params").toListRef();
        auto &options = program.optimizer->param_groups()[g].options();
        if (ids.size() != program.groups[g].size())
            throw std::runtime_error("a group has another number of parameters");
        taken(get(program.job, "kind", "Adam"), options, groups[g], nullptr);
        for (std::size_t i = 0; i < ids.size(); i++) {
            auto found = states.find(ids[i]);
            if (found == states.end())
                continue;
            torch::IValue own = found->value();
            auto state = taken(get(program.job, "kind", "Adam"), options, groups[g], &own);
            if (state)
                program.optimizer->state()[program.groups[g][i].second.unsafeGetTensorImpl()] = std::move(state);
        }
    }
}

void take_rng(const torch::IValue &held)
{
    if (!held.isGenericDict() || !held.toGenericDict().contains("rng"))
        return;
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(entry(entry(held, "rng"), "torch").toTensor());
}

// ---- archives of torch::save

void open(torch::serialize::InputArchive &archive, const Job &job, const std::string &file)
{
    if (get(job, "map").empty())
        archive.load_from(file);
    else
        archive.load_from(file, torch::Device(get(job, "map")));
}

template <typename Value> void load(Value &value, const Job &job, const std::string &file)
{
    if (get(job, "map").empty())
        torch::load(value, file);
    else
        torch::load(value, file, torch::Device(get(job, "map")));
}

void load_archives(Program &program, const Job &job)
{
    if (job.count("both")) {
        torch::serialize::InputArchive all, module, optimizer;
        open(all, job, get(job, "both"));
        all.read("model", module);
        all.read("optimizer", optimizer);
        program.net->load(module);
        program.optimizer->load(optimizer);
    }
    if (job.count("module"))
        load(program.net, job, get(job, "module"));
    if (job.count("optimizer"))
        load(*program.optimizer, job, get(job, "optimizer"));
}

// ---- the answer

std::string text(const std::string &s)
{
    std::string out = "\"";
    for (char c : s.substr(0, s.find("\nException raised"))) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += c >= ' ' && c <= '~' ? c : ' ';
    }
    return out + "\"";
}

std::string list(const std::vector<double> &values)
{
    std::string out;
    char one[40];
    for (double v : values) {
        std::snprintf(one, sizeof one, "%s%.9g", out.empty() ? "" : ", ", v);
        out += v == v && v - v == 0 ? one : out.empty() ? "null" : ", null";
    }
    return "[" + out + "]";
}

// What torch::load of a module makes of a file of torch.save: the words of its error, "" where it takes it.
std::string by_torch_load(const Job &job)
{
    try {
        Program program(job);
        load(program.net, job, get(job, "pickle"));
    } catch (const std::exception &e) {
        return e.what();
    }
    return "";
}

std::string answer(const Job &job)
{
    std::string out = "{", phase = "load";
    torch::manual_seed(2);
    try {
        Program program(job);
        if (job.count("make")) {
            program.train(0, BEFORE);
            torch::save(program.net, get(job, "make") + "-module.pt");
            torch::save(*program.optimizer, get(job, "make") + "-optimizer.pt");
            torch::serialize::OutputArchive all, module, optimizer;
            program.net->save(module);
            program.optimizer->save(optimizer);
            all.write("model", module);
            all.write("optimizer", optimizer);
            all.save_to(get(job, "make") + "-both.pt");
        } else if (job.count("pickle")) {
            out += "\"torch_load\": " + text(by_torch_load(job)) + ", ";
            auto held = unpickled(job);
            if (get(job, "model") != "-")
                take_model(program, at_path(held, get(job, "model")));
            if (get(job, "state") != "-")
                take_optimizer(program, at_path(held, get(job, "state")));
            take_rng(held);
        } else {
            load_archives(program, job);
        }
        std::string missing;
        for (auto &group : program.groups)
            for (auto &p : group)
                if (!program.optimizer->state().count(p.second.unsafeGetTensorImpl()))
                    missing += (missing.empty() ? "" : ", ") + text(p.first);
        phase = "step";
        out += "\"missing\": [" + missing + "], ";
        out += "\"losses\": " + list(program.train(BEFORE, AFTER)) + ", ";
    } catch (const std::exception &e) {
        out += "\"error\": " + text(e.what()) + ", ";
    }
    return out + "\"phase\": " + text(phase) + "}";
}

} // namespace

int main()
{
    torch::set_num_threads(1);
    for (std::string line; std::getline(std::cin, line);) {
        Job job;
        std::stringstream parts(line);
        for (std::string part; std::getline(parts, part, '\t');) {
            auto equals = part.find('=');
            if (equals != std::string::npos)
                job[part.substr(0, equals)] = part.substr(equals + 1);
        }
        std::cout << answer(job) << std::endl;
    }
    return 0;
}
