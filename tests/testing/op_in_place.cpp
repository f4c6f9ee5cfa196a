// What no row may lose without a word: gradients through writes in place, and values that changed
// between forward and backward.
#include <algorithm>
#include <functional>

#include "minim/testing/op_trial.h"

namespace minim::test {
namespace {

struct Write {
  const char* name;
  Tensor& (Tensor::*call)(const Tensor&);
};
constexpr Write kWrites[] = {{"add_", &Tensor::add_},
                             {"sub_", &Tensor::sub_},
                             {"mul_", &Tensor::mul_},
                             {"div_", &Tensor::div_},
                             {"copy_", &Tensor::copy_}};

/// The Error's text, which is "" where there is none.
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool lacks(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == text.npos) return true;
  return false;
}

/// Places for y: whole, the other way round, and every other element of a row.
std::vector<Tensor> places(const Tensor& y) {
  Dims reversed;
  Shape turned, wide = y.shape();
  for (int i = y.rank(); i-- > 0;) reversed.push_back(i), turned.push_back(y.shape()[i]);
  std::vector<Tensor> all{ones(y.shape(), y.dtype()), ones(turned, y.dtype()).permute(reversed)};
  if (y.rank() == 0) return all;
  wide[0] *= 2;
  all.push_back(ones(wide, y.dtype()).slice(0, 0, wide[0], 2));
  return all;
}

/// Every write of y, which requires gradients and which `made_by` made, and into it.
void check_writes(const std::string& where, const Tensor& y, const std::string& made_by,
                  Findings& findings) {
  const std::string what = name_of(y.dtype()) + to_string(y.shape());
  for (const Write& write : kWrites) {
    const std::string tag = std::string("[") + write.name + "]";
    for (Tensor place : places(y)) {
      const Tensor before = place.clone();
      const uint64_t version = place.version();
      if (lacks(refusal([&] { (place.*write.call)(y); }),
                {tag, made_by, what, "detach()", "NoGrad"}))
        findings.push_back(where + ": " + write.name + " of " + made_by +
                           " loses its gradient and is not refused");
      if (!same_bits(place, before) || place.version() != version)
        findings.push_back(where + ": " + write.name + " was refused, but it has written");
      if (!refusal([&] { (place.*write.call)(y.detach()); }).empty())
        findings.push_back(where + ": " + write.name + " refuses what was detached");
      NoGrad no_recording;
      (place.*write.call)(y);
    }
    Tensor view = y.unsqueeze(0);
    for (Tensor target : {y, view})
      if (lacks(refusal([&] { (target.*write.call)(ones({}, y.dtype())); }), {tag, "NoGrad"}))
        findings.push_back(where + ": " + write.name + " changes " + made_by +
                           ", which requires gradients, or a view of it");
  }
}

/// Writes x's own values into it, of an expanded tensor each once, as a change in place.
void touch(const Tensor& x) {
  NoGrad no_recording;
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    if (x.strides()[i] == 0) shape[i] = std::min<Index>(shape[i], 1);
  Tensor once = as_strided(x, shape, x.strides(), x.impl()->offset);
  once.copy_(once.clone());
}

/// Backward after a change of one operand or result: an error if it is saved, else the same bits.
void check_change(const Trial& trial, bool result, size_t k, const Outcome& want,
                  Findings& findings) {
  const OpRow& row = trial.row;
  const bool saved = (result ? row.saves.outputs : row.saves.inputs) >> k & 1;
  const std::string where =
      trial.name() + ", " + (result ? "result " : "operand ") + std::to_string(k) +
      (saved ? ", which backward reads," : ", which backward does not read,") + " changed in place";
  const std::vector<Tensor> xs = trial.operands(DType::f32, true);
  Outcome got;
  const std::string error = refusal([&] {
    got = forward_backward(trial, row, xs, xs,
                           [&](std::vector<Tensor>& out) { touch(result ? out[k] : xs[k]); });
  });
  if (saved && lacks(error, {"changed in place", row.name}))
    findings.push_back(where + ": backward went on");
  if (!saved && !error.empty()) findings.push_back(where + ": " + error);
  if (!saved && error.empty()) compare_bits(where, got, want, 0, findings);
}

}  // namespace

Findings check_in_place(const OpRow& row) {
  Findings findings;
  if (!row.differentiable) return findings;
  for (const Trial& trial : trials(row)) {
    const std::vector<Tensor> xs = trial.operands(DType::f32, true);
    const Outcome want = forward_backward(trial, row, xs, xs);
    for (int o = 0; o < row.returned; ++o)
      if (const Tensor& y = want.out[size_t(o)]; y.requires_grad())
        check_writes(trial.name(), y, std::string("the result of ") + row.name, findings);
    for (size_t k = 0; k < xs.size(); ++k) {
      if (!trial.given(k)) continue;
      xs[k].set_name("operand");
      if (xs[k].requires_grad()) check_writes(trial.name(), xs[k], "'operand'", findings);
      check_change(trial, false, k, want, findings);
    }
    for (size_t o = 0; o < row.outputs.size(); ++o) check_change(trial, true, o, want, findings);
  }
  return findings;
}

}  // namespace minim::test
