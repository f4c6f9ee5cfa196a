// autograd/checkpoint.h -- activation recompute: memory for time.
#pragma once
#include "minim/autograd/node.h"

namespace minim::autograd {

/// Calls `fn` on `inputs` and keeps nothing but them: backward() calls it a second time, with the
/// same random numbers and under the same autocast, and then goes through it. Gradients, also of
/// parameters and other tensors that `fn` refers to, are the same bits as without. `fn` and what
/// it refers to must live until then. It must do the same both times: forward hooks of modules run
/// in both calls; what it registers on tensors from outside is registered once, and batch norm's
/// running statistics move once.
/// @throws Error when it changed a tensor from outside in place; in backward(), when the second
/// call did other ops, or an input or parameter was changed in place since.
std::vector<Tensor> checkpoint(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
    const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input);

}  // namespace minim::autograd
