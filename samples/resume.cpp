// resume.cpp - the library from C++17: the same calls, with owners that free and a status that throws.
//
//     resume CHECKPOINT COPY [MAP]
//
// Binds a std::vector<float> to every float32 parameter that the checkpoint has, restores them, says where each came
// from, saves them to COPY as a plain weights file, restores that into fresh vectors, and compares the two bit by bit.
#include <ckpt/inspect.h>
#include <ckpt/train.h>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
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
using Reader = std::unique_ptr<ckpt_reader, Deleter<ckpt_reader_close>>;

// Turns a negative status into an exception that says what the library said.
template <typename Call> ckpt_status checked(Call call)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = call(&err);
    if (status < 0)
        throw std::runtime_error(std::string(err.object) + (err.object[0] ? ": " : "") + err.message);
    return status;
}

template <typename T> T owned(T object)
{
    if (!object)
        throw std::bad_alloc();
    return object;
}

// One parameter: a name, a shape, and this program's own memory.
struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

std::vector<Parameter> parameters_of(const char *path)
{
    ckpt_reader *opened = nullptr;
    checked([&](ckpt_error *err) { return ckpt_reader_open(path, nullptr, &opened, err); });
    Reader reader(opened);
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < ckpt_reader_tensor_count(reader.get()); i++) {
        const ckpt_tensor_info *info = ckpt_reader_tensor(reader.get(), i);
        if (info->role != CKPT_ROLE_PARAM || info->dtype != CKPT_F32)
            continue;
        Parameter p;
        p.name.assign(info->name.data, info->name.size);
        p.shape.assign(info->shape, info->shape + info->ndim);
        p.values.resize(info->nbytes / sizeof(float));
        list.push_back(std::move(p));
    }
    return list;
}

State bind(std::vector<Parameter> &parameters)
{
    State state = owned(State(ckpt_state_new()));
    for (Parameter &p : parameters) {
        ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
        desc.name = p.name.c_str();
        desc.dtype = CKPT_F32;
        desc.ndim = static_cast<std::uint32_t>(p.shape.size());
        desc.shape = p.shape.data();
        desc.role = CKPT_ROLE_PARAM;
        desc.data = p.values.data();
        checked([&](ckpt_error *err) { return ckpt_state_tensor(state.get(), &desc, err); });
    }
    return state;
}

void restore(ckpt_state *state, const char *path, const char *map, ckpt_report *report)
{
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.map_location = map;
    options.allow_unexpected = true; // the optimizer, the scaler and the rest are left alone
    checked([&](ckpt_error *err) { return ckpt_restore(state, path, &options, report, err); });
}

int run(const char *path, const char *copy, const char *map)
{
    std::vector<Parameter> parameters = parameters_of(path);
    if (parameters.empty())
        throw std::runtime_error(std::string(path) + ": no float32 parameters");
    State state = bind(parameters);
    Report report = owned(Report(ckpt_report_new()));
    restore(state.get(), path, map, report.get());
    for (std::size_t i = 0; i < ckpt_report_count(report.get()); i++) {
        const ckpt_finding *f = ckpt_report_get(report.get(), i);
        if (std::strcmp(f->code, "moved") == 0)
            std::printf("%s: %s -> %s\n", f->tensor, f->from, f->to);
    }

    ckpt_save_options save = CKPT_SAVE_OPTIONS_INIT;
    save.weights_only = true;
    checked([&](ckpt_error *err) { return ckpt_save(state.get(), copy, &save, err); });

    std::vector<Parameter> again = parameters;
    for (Parameter &p : again)
        p.values.assign(p.values.size(), 0.0f);
    restore(bind(again).get(), copy, nullptr, nullptr);
    for (std::size_t i = 0; i < parameters.size(); i++) {
        const Parameter &a = parameters[i], &b = again[i];
        if (std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) != 0)
            throw std::runtime_error(a.name + ": not what was saved");
    }
    std::printf("%zu parameters restored, saved, and restored again: equal\n", parameters.size());
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        std::fputs("usage: resume CHECKPOINT COPY [MAP]\n", stderr);
        return 2;
    }
    try {
        return run(argv[1], argv[2], argc > 3 ? argv[3] : "cpu");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
