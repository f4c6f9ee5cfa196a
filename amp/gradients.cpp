#include "minim/amp/gradients.h"

#include <unordered_set>

#include "minim/autograd/node.h"
#include "minim/core/backend.h"

namespace minim::amp {
namespace {

/// The first tensor with a bad value.
FirstBad first_of(std::span<const Finite> kinds) {
  for (size_t k = 0; k < kinds.size(); ++k)
    if (kinds[k] != Finite::yes) return {kinds[k], k};
  return {};
}

}  // namespace

Flat flat_of(const Tensor& x) {
  return x.defined() ? Flat{x.data(), x.dtype(), x.numel()} : Flat{};
}

FlatList flat_list(std::span<const Tensor> tensors, const char* what) {
  FlatList list;
  const Tensor* first = nullptr;
  for (const Tensor& x : tensors) {
    list.all.push_back(flat_of(x));
    if (!x.defined()) continue;
    if (!first) first = &x;
    if (!(x.device() == first->device()))
      fail("[", what, "] the tensors are on ", backend(first->device()).name, " and ",
           backend(x.device()).name, "; call it for those of each device");
  }
  if (first) list.device = first->device();
  return list;
}

std::vector<Tensor> each_once(std::span<const Tensor> params) {
  std::vector<Tensor> once;
  std::unordered_set<const TensorImpl*> seen;
  for (const Tensor& p : params)
    if (seen.insert(p.shared().get()).second) once.push_back(p);
  return once;
}

std::vector<Tensor> dense_gradients(std::span<const Tensor> params) {
  MemoryScope kind(MemoryKind::gradients);
  std::vector<Tensor> gradients;
  for (const Tensor& p : params) {
    Tensor g = p.grad();
    if (g.defined() && (is_half(g.dtype()) || !g.is_contiguous())) {
      Tensor dense = empty(g.shape(), promote_types(g.dtype(), DType::f32), g.device());
      copy_elements(g, dense);
      if (const double scale = carried_scale(g); scale != 1) set_carried_scale(dense, scale);
      p.set_grad(g = dense);
    }
    gradients.push_back(g);
  }
  return gradients;
}

const char* name_of(Finite finite) {
  constexpr const char* names[] = {"finite", "inf", "NaN"};
  return names[size_t(finite)];
}

FirstBad first_nonfinite(std::span<const Tensor> gradients, Factors f) {
  const FlatList list = flat_list(gradients, "first_nonfinite");
  std::vector<Finite> kinds(list.all.size());
  backend(list.device).survey(list.all, f, kinds.data());
  return first_of(kinds);
}

FirstBad multiply(std::span<const Tensor> gradients, double factor) {
  std::vector<Tensor> once(gradients.begin(), gradients.end());
  std::unordered_set<const void*> seen;
  for (Tensor& g : once)
    if (g.defined() && !seen.insert(g.data()).second) g = {};
  const FlatList list = flat_list(once, "multiply");
  std::vector<Finite> kinds(list.all.size());
  backend(list.device).multiply(list.all, factor, kinds.data());
  for (const Tensor& g : once)
    if (g.defined()) g.bump_version();
  return first_of(kinds);
}

std::string label(const Tensor& param, size_t index) {
  return !param.defined() || param.name().empty() ? "parameter " + std::to_string(index)
                                                  : "'" + param.name() + "'";
}

void check_leaf(const Tensor& param, size_t index, const char* what) {
  const auto& a = param.impl()->autograd;
  if (a && a->node)
    fail("[", what, "] can't optimize a tensor that an op made: ", label(param, index),
         " is the result of ", a->node->row->name,
         ", and gradients go on to what that was made from; give those, or make it a leaf: "
         ".detach().set_requires_grad()");
}

void check_scale(std::span<const Tensor> params, double expected, const char* what) {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor g = params[i].grad();
    if (!g.defined()) continue;
    const double scale = carried_scale(g);
    if (scale == expected) continue;
    if (expected == 1)
      fail("[", what, "] the gradient of ", label(params[i], i), " still carries the loss scale ",
           scale, "; call scaler.unscale(optimizer) first, or step with scaler.step(optimizer)");
    fail("[", what, "] the gradient of ", label(params[i], i), " carries the loss scale ", scale,
         ", not ", expected,
         "; run scaler.scale(loss).backward() for every loss, and zero_grad() after update()",
         scale == 1 ? "; a gradient divided by what carries the scale too, as g / norm(g), carries "
                      "none: call scaler.unscale(optimizer) before you make it"
                    : "");
  }
}

}  // namespace minim::amp
