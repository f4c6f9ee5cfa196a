// autograd/loss_scale.cpp -- which loss scale a value carries: of gradients in backward, and of
// what is computed from them afterwards.
#include "minim/autograd/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <unordered_map>

#include "minim/autograd/node.h"

namespace minim {
namespace {

constexpr double kMixed = std::numeric_limits<double>::quiet_NaN();

template <class... Rows>
bool is_one_of(const OpRow& row, const Rows&... rows) {
  return ((&row == &rows) || ...);
}

/// The scale of a result whose operands do not all carry 1.
double scale_of_result(const OpRow& row, std::span<const Tensor> operands) {
  auto scale = [&](size_t k) { return carried_scale(operands[k]); };
  if (is_one_of(row, Op::mul, Op::matmul)) return scale(0) * scale(1);
  if (is_one_of(row, Op::div)) return scale(0) / scale(1);
  // Twice the operands, twice the result.
  const bool grows = row.view || is_one_of(row, Op::add, Op::sub, Op::neg, Op::abs, Op::to, Op::cat,
                                           Op::sum, Op::mean, Op::max, Op::min, Op::maximum,
                                           Op::minimum, Op::norm, Op::gather, Op::index_select);
  if (!grows) return kMixed;
  const bool by_index = is_one_of(row, Op::gather, Op::index_select);  // no value of the result
  for (size_t k = 1; k < operands.size() && !by_index; ++k)
    if (operands[k].defined() && scale(k) != scale(0)) return kMixed;
  return scale(0);
}

std::string words_for(double scale) {
  std::ostringstream text;
  text << "loss scale " << scale;
  return std::isnan(scale) ? "a mixture of loss scales" : scale == 1 ? "no loss scale" : text.str();
}

[[noreturn]] void fail_meeting(const Node& node, double a, double b) {
  fail("[", node.row->name, " backward] an operand",
       node.module ? " in module " + *node.module : "", " would get the sum of a gradient with ",
       words_for(std::max(a, b)), " and one with ", words_for(std::min(a, b)),
       ", which is right for neither; scale the sum of the losses, once and with one scaler: "
       "scaler.scale(a + b)");
}

}  // namespace

void set_carried_scale(const Tensor& x, double scale) { autograd_of(x).carries = scale; }

void carry_marks(const OpRow& row, std::span<const Tensor> operands,
                 std::span<const Tensor> outputs) {
  bool scaled = false;
  for (const Tensor& x : operands) {
    if (!x.defined() || !x.impl()->autograd) continue;
    const Autograd& a = *x.impl()->autograd;
    scaled |= a.carries != 1;
    if (a.gradient_of && GradMode::enabled())
      for (const Tensor& y : outputs) autograd_of(y).gradient_of = a.gradient_of;
  }
  if (!scaled) return;
  const double scale = scale_of_result(row, operands);
  for (const Tensor& y : outputs)
    if (scale != 1 && is_floating(y.dtype())) set_carried_scale(y, scale);
}

void check_carried(const Tensor& x, const Tensor& values, const char* what) {
  const double mine = carried_scale(x), theirs = carried_scale(values);
  if (mine == theirs) return;
  const auto& storage = x.impl()->storage;
  const bool whole =
      storage.use_count() == 1 && storage->bytes == size_t(x.numel()) * size_of(x.dtype());
  if (mine == 1 && !std::isnan(theirs) && whole && !x.requires_grad())
    return set_carried_scale(x, theirs);
  fail("[", what, "] ", origin(x), " ",
       mine == 1 ? "would take gradients that still carry a loss scale"
                 : "carries the loss scale of its gradients and would take what does not",
       "; call scaler.unscale(optimizer) first, or use an out-of-place op");
}

void check_hook_scale(const OpRow& made_by, const Tensor& returned, double scale) {
  const double carried = carried_scale(returned);
  if (carried == scale) return;
  fail("[", made_by.name, " backward] a hook turned a gradient with ", words_for(scale),
       " into one with ", words_for(carried),
       "; what grows with the gradient keeps its scale (g * 0.5), and other values get it by "
       "scaler.scale(values)");
}

Scales trace_scales(std::span<Node* const> nodes, double first) {
  const auto scaled =
      std::ranges::count_if(nodes, [](const Node* node) { return node->scale != 1; });
  if (scaled == 0) return {true, first};
  if (scaled == 1 && nodes[0]->scale != 1) return {true, first * nodes[0]->scale};
  std::vector<Node*> order(nodes.begin(), nodes.end());
  std::ranges::sort(order, std::greater(), [](const Node* node) { return node->sequence; });
  for (Node* node : order) node->carried = 0;  // not known
  nodes[0]->carried = first;
  Scales scales{false, first};
  std::unordered_map<const Autograd*, double> leaves;
  for (Node* node : order) {
    const double scale = node->carried * node->scale;
    scales.most = std::max(scales.most, scale);
    for (const auto& operand : node->operands) {
      const Autograd* target = operand.gradient_to.get();
      if (!target) continue;
      double& carried = target->node ? target->node->carried : leaves[target];
      if (carried == 0) carried = scale;
      if (carried != scale) fail_meeting(*node, carried, scale);
    }
  }
  return scales;
}

}  // namespace minim
