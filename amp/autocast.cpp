#include "minim/amp/autocast.h"

#include <algorithm>

#include "minim/autograd/node.h"

namespace minim {

const char* name_of(Cast cast) {
  constexpr std::array<const char*, 5> names{"lower", "fp32", "promote", "keep", "banned"};
  return names[size_t(cast)];
}

namespace amp {
namespace {

struct CachedCast {
  Tensor source, copy;  // the source is held so that its address is not reused
  uint64_t version;
  bool grad_mode;
};
thread_local Autocast* innermost = nullptr;
thread_local std::unordered_map<const TensorImpl*, std::vector<CachedCast>> cache;

}  // namespace

const char* name_of(Policy policy) { return policy == Policy::torch ? "torch" : "lean"; }

Policy policy_named(std::string_view name) {
  for (Policy p : {Policy::torch, Policy::lean})
    if (name == name_of(p)) return p;
  fail("'", name, "' is no autocast policy; known: torch, lean");
}

/// Overrides inside those of the regions around.
static std::unordered_map<const OpRow*, Cast> with(std::initializer_list<Override> own,
                                                   std::unordered_map<const OpRow*, Cast> all) {
  for (auto o = own.begin(); o != own.end(); ++o) {
    if (&o->row == &Op::to && o->cast != Cast::keep)
      fail("autocast cannot make 'to' ", minim::name_of(o->cast), ": ", o->row.why,
           ", and other ops are cast by it");
    if (std::any_of(own.begin(), o, [&](const Override& p) { return &p.row == &o->row; }))
      fail("autocast has two overrides of '", o->row.name, "'; give one");
    all.insert_or_assign(&o->row, o->cast);
  }
  return all;
}

Autocast::Autocast(DType lower, std::initializer_list<Override> overrides, Policy policy)
    : Autocast(State{is_half(lower), lower, policy, with(overrides, state().overrides)}) {}

Autocast::Autocast(State state) : state_(std::move(state)), outer_(innermost) {
  if (!is_half(state_.lower) && state_.lower != DType::f32)
    fail("autocast to ", minim::name_of(state_.lower),
         ": expected f16 or bf16 (or f32, which casts nothing)");
  innermost = this;
}

Autocast::State Autocast::state() { return innermost ? innermost->state_ : State(); }

Autocast::~Autocast() {
  innermost = outer_;
  if (!outer_) cache.clear();
}

Autocast* Autocast::current() {
  return innermost && innermost->state_.enabled ? innermost : nullptr;
}

Cast Autocast::cast_of(const OpRow& row) const {
  if (auto it = state_.overrides.find(&row); it != state_.overrides.end()) return it->second;
  return state_.policy == Policy::torch ? row.cast : row.lean;
}

Tensor Autocast::find(const Tensor& leaf, DType to) const {
  auto it = cache.find(leaf.impl());
  if (it == cache.end()) return {};
  for (const CachedCast& c : it->second)
    if (c.copy.dtype() == to && c.version == leaf.version() && c.grad_mode == GradMode::enabled())
      return c.copy;
  return {};
}

void Autocast::keep(const Tensor& leaf, const Tensor& copy) const {
  auto& entries = cache[leaf.impl()];
  std::erase_if(entries, [&](const CachedCast& c) { return c.version != leaf.version(); });
  entries.push_back({leaf, copy, leaf.version(), GradMode::enabled()});
}

Choice choose_dtype(const OpRow& row, const Autocast* region, std::span<const Typed> operands) {
  DType native = result_type(operands);
  if (!is_floating(native) && !row.integers) native = DType::f32;
  bool floating = std::any_of(operands.begin(), operands.end(),
                              [](const Typed& t) { return is_floating(t.dtype); });
  if (!region) return {native};
  Cast cast = region->cast_of(row);
  if (cast == Cast::banned && region->overrides(row))
    fail("[", row.name,
         "] is banned by an override of this autocast region; call it in a region inside with "
         "another override, as {{Op::",
         row.name, ", Cast::keep}}");
  if (cast == Cast::banned)
    fail("[", row.name, "] is unsafe under autocast: ", row.why, "; use ",
         row.instead ? row.instead : "another op");
  if (native == DType::f64 || !floating) return {native};
  // Others widen as they load and know from the choice what their result is.
  const bool convert = row.same_dtype || row.view || row.result == Result::attribute;
  switch (cast) {
    case Cast::lower:
      return {region->lower(), true};
    case Cast::fp32:
      return {DType::f32, convert};
    case Cast::promote:
      return {promote_types(native, region->lower()), convert};
    default:
      return {native};
  }
}

}  // namespace amp
}  // namespace minim
