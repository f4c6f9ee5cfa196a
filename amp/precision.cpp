#include "minim/amp/precision.h"

#include <charconv>

namespace minim::amp {
namespace {

struct Mode {
  const char* name;
  DType params, compute;
  bool masters, stochastic;
};
constexpr Mode kModes[] = {
    {"fp32", DType::f32, DType::f32, false, false},
    {"amp-bf16", DType::f32, DType::bf16, false, false},
    {"amp-fp16", DType::f32, DType::f16, false, false},
    {"bf16-master", DType::bf16, DType::bf16, true, false},
    {"fp16-master", DType::f16, DType::f16, true, false},
    {"bf16-sr", DType::bf16, DType::bf16, false, true},
};

const Mode& mode_named(std::string_view name) {
  std::string known;
  for (const Mode& m : kModes) {
    if (name == m.name) return m;
    known += std::string(" ") + m.name;
  }
  fail("'", name, "' is no precision; known:", known);
}

double number(std::string_view text) {
  double v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !is_scale(v))
    fail("'", text,
         "' is no loss scale; expected auto, dynamic, none or a positive number that fits f32, as "
         "its reciprocal does");
  return v;
}

ScalerConfig scaler_for(const Mode& mode, std::string_view loss_scale) {
  bool fp16 = mode.compute == DType::f16;
  if (loss_scale == "none" || (loss_scale == "auto" && !fp16)) return {.enabled = false};
  if (loss_scale == "auto" || (loss_scale == "dynamic" && fp16)) return {};
  double fixed = loss_scale == "dynamic" ? 1 : number(loss_scale);
  if (!fp16)
    fail("loss scale '", loss_scale, "' contradicts precision '", mode.name,
         "', which has fp32's range and needs none; use auto or none");
  return {.dynamic = false, .init_scale = fixed};
}

}  // namespace

Precision resolve_precision(std::string_view mode, std::string_view loss_scale,
                            std::string_view policy) {
  const Mode& m = mode_named(mode);
  Precision p;
  p.mode = m.name;
  p.params = m.params;
  p.compute = m.compute;
  p.autocast = m.params != m.compute;
  p.masters = m.masters;
  p.stochastic = m.stochastic;
  p.policy = policy_named(policy);
  p.scaler_config = scaler_for(m, loss_scale);
  return p;
}

std::string describe(const Precision& p) {
  std::ostringstream text;
  text << "precision " << p.mode << ": parameters " << name_of(p.params);
  if (p.masters) text << " with f32 masters";
  if (p.stochastic) text << " rounded stochastically";
  text << ", compute " << name_of(p.compute);
  if (p.autocast) text << " by autocast (policy " << name_of(p.policy) << ")";
  text << ", gradients f32, loss scale ";
  if (!p.scaler())
    text << "none";
  else
    text << (p.scaler_config.dynamic ? "dynamic from " : "fixed at ") << p.scaler_config.init_scale;
  return text.str();
}

}  // namespace minim::amp
