#include "minim/amp/gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "minim/autograd/node.h"
#include "minim/core/math.h"
#include "minim/core/per_isa.h"

namespace minim::amp {
namespace {

template <class A>
struct AllFinite {
  static void run(const A* g, Index n, A scale, A clip, bool* finite) {
    int bad = 0;
    for (Index i = 0; i < n; ++i)
      bad |= !(math::fabs(g[i] * scale * clip) <= std::numeric_limits<A>::max());
    *finite = !bad;
  }
};
template <class A>
Finite kind_of(const A* g, Index n, A scale, A clip) {
  bool finite;
  per_isa<A, AllFinite<A>>(g, n, scale, clip, &finite);
  if (finite) return Finite::yes;
  for (Index i = 0; i < n; ++i)
    if (std::isnan(g[i] * scale * clip)) return Finite::nan;
  return Finite::inf;
}
template <class A>
struct Multiply {
  static void run(A* g, Index n, A factor) {
    for (Index i = 0; i < n; ++i) g[i] *= factor;
  }
};

/// Calls look(p, n), which says how its values are, on every chunk; the result is the first tensor
/// with a bad one.
template <class F>
FirstBad survey(std::span<const Tensor> gradients, F&& look) {
  std::vector<Chunk> chunks = chunks_of(gradients);
  std::vector<Finite> kinds(chunks.size(), Finite::yes);
  each_chunk(gradients, chunks, [&](size_t k, auto* p, Index n) { kinds[k] = look(p, n); });
  FirstBad bad;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (kinds[i] == Finite::yes) continue;
    if (bad.kind == Finite::yes) bad.index = chunks[i].tensor;
    if (chunks[i].tensor == bad.index) bad.kind = std::max(bad.kind, kinds[i]);
  }
  return bad;
}

}  // namespace

std::vector<Chunk> chunks_of(std::span<const Tensor> tensors) {
  constexpr Index kChunk = 16384;
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < tensors.size(); ++t) {
    Index n = tensors[t].defined() ? tensors[t].numel() : 0;
    for (Index i = 0; i < n; i += kChunk) chunks.push_back({t, i, std::min(n, i + kChunk)});
  }
  return chunks;
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
  return survey(gradients, [&]<class A>(const A* g, Index n) {
    return kind_of(g, n, A(f.inverse_scale), A(f.clip));
  });
}

FirstBad multiply(std::span<const Tensor> gradients, double factor) {
  std::vector<Tensor> once(gradients.begin(), gradients.end());
  std::unordered_set<const void*> seen;
  for (Tensor& g : once)
    if (g.defined() && !seen.insert(g.data()).second) g = {};
  FirstBad bad = survey(once, [&]<class A>(A* g, Index n) {
    per_isa<A, Multiply<A>>(g, n, A(factor));
    return kind_of<A>(g, n, A(1), A(1));
  });
  for (const Tensor& g : once)
    if (g.defined()) g.bump_version();
  return bad;
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
