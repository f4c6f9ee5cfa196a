// The functions of minim that have no row of their own, by name.
#include <map>

#include "minim/ops/composite.h"
#include "minim/ops/einsum.h"
#include "minim/tools/judge/attrs.h"

namespace minim::judge {
namespace {

using Tensors = std::vector<Tensor>;
using Function = Tensors (*)(const Tensors& x, Fields& f);

/// x[0] with an in-place call on a copy of it, which is what may be written where x requires
/// gradients.
template <class F>
Tensors in_place(const Tensors& x, F change) {
  Tensor copy = x[0].clone();
  change(copy);
  return {copy};
}

Tensors split_along(const Tensors& x, Fields& f) {
  const Index axis = f.get<Index>("axis", 0), size = f.get<Index>("size", 0);
  const auto sizes = f.get<std::vector<Index>>("sizes", {});
  return size > 0 ? split(x[0], size, axis) : split(x[0], sizes, axis);
}

/// The result, and the running statistics after it.
Tensors train_batch_norm(const Tensors& x, Fields& f) {
  BatchNormUpdate attrs;
  f.read("momentum", attrs.momentum), f.read("eps", attrs.eps);
  const Tensor mean = x[1].detach().clone(), var = x[2].detach().clone();
  const Tensor y = batch_norm_update(x[0], mean, var, x.size() > 3 ? x[3] : Tensor(),
                                     x.size() > 4 ? x[4] : Tensor(), attrs);
  return {y, mean, var};
}

const std::map<std::string, Function> kFunctions{
    {"cat", [](const Tensors& x, Fields& f) { return Tensors{cat(x, f.get<Index>("axis", 0))}; }},
    {"stack",
     [](const Tensors& x, Fields& f) { return Tensors{stack(x, f.get<Index>("axis", 0))}; }},
    {"split", split_along},
    {"einsum", [](const Tensors& x,
                  Fields& f) { return Tensors{einsum(f.get<std::string>("equation", ""), x)}; }},
    {"batch_norm_update", train_batch_norm},
    {"clone", [](const Tensors& x, Fields&) { return Tensors{x[0].clone()}; }},
    {"contiguous", [](const Tensors& x, Fields&) { return Tensors{x[0].contiguous()}; }},
    {"flatten",
     [](const Tensors& x, Fields& f) {
       return Tensors{x[0].flatten(f.get<Index>("from", 0), f.get<Index>("to", -1))};
     }},
    {"transpose",
     [](const Tensors& x, Fields& f) {
       return Tensors{x[0].transpose(f.get<Index>("a", 0), f.get<Index>("b", 1))};
     }},
    {"select",
     [](const Tensors& x, Fields& f) {
       return Tensors{x[0].select(f.get<Index>("axis", 0), f.get<Index>("i", 0))};
     }},
    {"squeeze",
     [](const Tensors& x, Fields& f) { return Tensors{x[0].squeeze(f.get<Index>("axis", 0))}; }},
    {"unsqueeze",
     [](const Tensors& x, Fields& f) { return Tensors{x[0].unsqueeze(f.get<Index>("axis", 0))}; }},
    {"full",
     [](const Tensors&, Fields& f) {
       return Tensors{full(f.get<Shape>("shape", {}), f.get<double>("value", 0),
                           f.get<DType>("dtype", DType::f32))};
     }},
    {"arange",
     [](const Tensors&, Fields& f) {
       return Tensors{arange(f.get<Index>("n", 0), f.get<DType>("dtype", DType::i64))};
     }},
    {"fill_",
     [](const Tensors& x, Fields& f) {
       const double v = f.get<double>("value", 0);
       return in_place(x, [&](Tensor& t) { t.fill_(v); });
     }},
    {"copy_",
     [](const Tensors& x, Fields&) { return in_place(x, [&](Tensor& t) { t.copy_(x[1]); }); }},
    {"add_",
     [](const Tensors& x, Fields&) { return in_place(x, [&](Tensor& t) { t.add_(x[1]); }); }},
    {"sub_",
     [](const Tensors& x, Fields&) { return in_place(x, [&](Tensor& t) { t.sub_(x[1]); }); }},
    {"mul_",
     [](const Tensors& x, Fields&) { return in_place(x, [&](Tensor& t) { t.mul_(x[1]); }); }},
    {"div_",
     [](const Tensors& x, Fields&) { return in_place(x, [&](Tensor& t) { t.div_(x[1]); }); }},
};

}  // namespace

std::optional<Tensors> call_function(const std::string& name, const Tensors& operands,
                                     Fields& attrs) {
  const auto found = kFunctions.find(name);
  if (found == kFunctions.end()) return {};
  return found->second(operands, attrs);
}

}  // namespace minim::judge
