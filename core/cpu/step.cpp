// What a step does to lists of gradients and parameters. Work is cut into chunks by sizes alone,
// across tensors, so that no bit depends on threads.
#include <cmath>
#include <cstring>
#include <vector>

#include "minim/core/convert.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/cpu/verbs.h"
#include "minim/core/parallel.h"
#include "minim/core/per_isa.h"
#include "minim/core/random.h"
#include "minim/core/sum.h"

namespace minim::cpu {
namespace {

using amp::Factors;
using amp::Finite;
using optim::Constants;
using optim::Update;

/// Elements [begin, begin + n) of tensor number `tensor` of a list.
struct Chunk {
  size_t tensor;
  Index begin, n;
};
template <class Sizes>
std::vector<Chunk> chunks_of(size_t tensors, Sizes size) {
  constexpr Index kChunk = 16384;
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < tensors; ++t)
    for (Index i = 0, n = size(t); i < n; i += kChunk)
      chunks.push_back({t, i, std::min(n - i, kChunk)});
  return chunks;
}

template <class F>
void each(std::span<const Chunk> chunks, F f) {
  parallel_for(Index(chunks.size()), 1, [&](Index first, Index last) {
    for (size_t k = size_t(first); k < size_t(last); ++k) f(k, chunks[k]);
  });
}
/// f(k, p, n) with the elements of every chunk k.
template <class F>
void each_of(std::span<const Flat> tensors, std::span<const Chunk> chunks, F f) {
  each(chunks, [&](size_t k, const Chunk& c) {
    const Flat& t = tensors[c.tensor];
    t.dtype == DType::f64 ? f(k, static_cast<double*>(t.data) + c.begin, c.n)
                          : f(k, static_cast<float*>(t.data) + c.begin, c.n);
  });
}

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

/// Calls look(p, n), which says how its values are, on every chunk.
template <class F>
void look_at(std::span<const Flat> gradients, Finite* kinds, F look) {
  const std::vector<Chunk> chunks =
      chunks_of(gradients.size(), [&](size_t t) { return gradients[t].n; });
  std::vector<Finite> found(chunks.size(), Finite::yes);
  each_of(gradients, chunks, [&](size_t k, auto* p, Index n) { found[k] = look(p, n); });
  std::fill_n(kinds, gradients.size(), Finite::yes);
  for (size_t k = 0; k < chunks.size(); ++k)
    kinds[chunks[k].tensor] = std::max(kinds[chunks[k].tensor], found[k]);
}

template <class A>
struct SumOfSquares {
  static void run(const A* g, Index n, A factor, double* sum) {
    *sum = sum16<double>(n, [=](Index i) {
      const double x = g[i] * factor;
      return x * x;
    });
  }
};
/// The sum of |x|^p, or for p = infinity the largest |x|.
template <class X>
double power_sum_of(Index n, double p, X x) {
  if (std::isinf(p)) return max16<double>(n, [&](Index i) { return std::fabs(x(i)); });
  if (p == 1) return sum16<double>(n, [&](Index i) { return std::fabs(x(i)); });
  return sum16<double>(n, [&](Index i) { return std::pow(std::fabs(x(i)), p); });
}

constexpr Index kBlock = 512;

/// Up to kBlock values of a parameter and its master, of which the parameter is the rounding unless
/// somebody else wrote it since: there the master takes what was written, and elsewhere it keeps
/// its fraction. Says whether there is such a place; looks no further without `take`.
bool adopt_block(const void* param, DType dtype, float* master, Index n, bool take) {
  uint16_t rounded[kBlock];
  (dtype == DType::f16 ? isa().narrow_f16 : isa().narrow_bf16)(master, rounded, n);
  if (std::memcmp(rounded, param, size_t(n) * sizeof *rounded) == 0) return false;
  const auto* written = static_cast<const uint16_t*>(param);
  float values[kBlock];
  load_run(param, dtype, 1, n, values);
  for (Index j = 0; j < n && take; ++j)
    if (written[j] != rounded[j]) master[j] = values[j];
  return true;
}

/// The weights w, the gradient g and the states of n elements.
template <class A>
struct Elements {
  A* w;
  const A* g;
  A* states[3];
  A inverse_scale, clip;
};
template <class A, class Rule>
struct UpdateLoop {
  static void run(const Constants<A>* from, const Elements<A>* at, Index n) {
    const Constants<A> c = *from;  // a branch on a local one is taken out of the loop
    const auto [w, g, states, inverse_scale, clip] = *at;
    A *m = states[0], *v = states[1], *top = states[2];
    MINIM_IVDEP
    for (Index j = 0; j < n; ++j)
      w[j] = Rule{}(c, w[j], g[j] * inverse_scale * clip, m[j], v[j], top[j]);
  }
};

/// Writes elements [begin, begin + n) of a parameter that is not itself of type A.
template <class A>
void store(const Update& u, Index begin, Index n, const A* values) {
  if (!u.stochastic)
    return store_run(advance(u.param.data, u.param.dtype, begin), u.param.dtype, 1, n, values);
  bf16* to = static_cast<bf16*>(u.param.data);
  std::array<uint32_t, 4> block{};
  for (Index e = begin; e < begin + n; ++e) {
    if (e == begin || e % 8 == 0) block = Philox::block(u.seed, u.stream, uint64_t(e) / 8);
    to[e] = optim::round_stochastically(float(values[e - begin]),
                                        optim::rounding_bits(block, uint64_t(e)));
  }
}

template <class A>
void update_chunk(const Update& u, Index begin, Index end) {
  const Constants<A> c = u.constants.to<A>();
  const bool in_place = u.master || u.param.dtype == dtype_for<A>();
  A weights[kBlock], gradients[kBlock], spare[3][kBlock] = {};
  for (Index at = begin; at < end; at += kBlock) {
    const Index n = std::min(kBlock, end - at);
    void* const param = advance(u.param.data, u.param.dtype, at);
    Elements<A> e{weights,
                  load_run(static_cast<const void*>(advance(u.grad.data, u.grad.dtype, at)),
                           u.grad.dtype, 1, n, gradients),
                  {},
                  A(u.factors.inverse_scale),
                  A(u.factors.clip)};
    if (!in_place)
      load_run(param, u.param.dtype, 1, n, weights);
    else if (!u.master)
      e.w = static_cast<A*>(param);
    if constexpr (std::is_same_v<A, float>)
      if (u.master) adopt_block(param, u.param.dtype, e.w = u.master + at, n, true);
    for (size_t k = 0; k < 3; ++k)
      e.states[k] = u.states[k] ? static_cast<A*>(u.states[k]) + at : spare[k];
    optim::with_rule<A>(u.kind, [&]<class Rule>(Rule) {
      per_isa<A, UpdateLoop<A, Rule>>(&c, static_cast<const Elements<A>*>(&e), n);
    });
    if (u.param.dtype != dtype_for<A>()) store(u, at, n, e.w);
  }
}

}  // namespace

void survey(std::span<const Flat> gradients, Factors f, Finite* kinds) {
  look_at(gradients, kinds, [&]<class A>(const A* g, Index n) {
    return kind_of(g, n, A(f.inverse_scale), A(f.clip));
  });
}

void multiply(std::span<const Flat> gradients, double factor, Finite* kinds) {
  look_at(gradients, kinds, [&]<class A>(A* g, Index n) {
    per_isa<A, Multiply<A>>(g, n, A(factor));
    return kind_of<A>(g, n, A(1), A(1));
  });
}

double power_sum(std::span<const Flat> gradients, double p, double factor, double unit) {
  const std::vector<Chunk> chunks =
      chunks_of(gradients.size(), [&](size_t t) { return gradients[t].n; });
  if (chunks.empty()) return 0;
  std::vector<double> parts(chunks.size());
  each_of(gradients, chunks, [&]<class A>(size_t k, const A* g, Index n) {
    if (p == 2 && unit == 1)
      per_isa<A, SumOfSquares<A>>(g, n, A(factor), &parts[k]);
    else
      parts[k] = power_sum_of(n, p, [&](Index i) { return double(g[i] * A(factor)) / unit; });
  });
  auto part = [&](Index k) { return parts[size_t(k)]; };
  const Index n = Index(parts.size());
  return std::isinf(p) ? max16<double>(n, part) : sum16<double>(n, part);
}

bool adopt(const Flat& param, float* master, bool take) {
  bool any = false;
  for (Index at = 0; at < param.n && (take || !any); at += kBlock)
    any |= adopt_block(advance(param.data, param.dtype, at), param.dtype, master + at,
                       std::min(kBlock, param.n - at), take);
  return any;
}

void update(std::span<const Update> updates) {
  const std::vector<Chunk> chunks =
      chunks_of(updates.size(), [&](size_t t) { return updates[t].grad.n; });
  each(chunks, [&](size_t, const Chunk& c) {
    const Update& u = updates[c.tensor];
    u.param.dtype == DType::f64 ? update_chunk<double>(u, c.begin, c.begin + c.n)
                                : update_chunk<float>(u, c.begin, c.begin + c.n);
  });
}

}  // namespace minim::cpu
