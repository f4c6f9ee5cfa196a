#include "minim/core/backend.h"

#include <cstring>

#include "minim/core/allocator.h"
#include "minim/core/cpu/verbs.h"

namespace minim::cpu {

const Backend kBackend{
    .name = "cpu",
    .kernels = KernelSet::cpu,
    .allocate = memory::allocate,
    .release = memory::release,
    .upload = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
    .download = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
    .wait = [] {},
    .launch = [](Kernel kernel, OpArgs& args) { kernel(args); },
    .copy = copy,
    .fill = fill,
    .sum_to = sum_to,
    .survey = survey,
    .multiply = multiply,
    .power_sum = power_sum,
    .adopt = adopt,
    .update = update,
};

}  // namespace minim::cpu
