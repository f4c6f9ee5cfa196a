#include "minim/autograd/parts.h"

#include <algorithm>
#include <tuple>

#include "minim/core/profile.h"

namespace minim::parts {
namespace {

/// Node `node` is elements [begin, end) of an axis of a result.
struct Part {
  Node::Result* of;
  int axis;
  Index begin, end;
  Node* node;
};

Node::Result* result(const std::shared_ptr<Autograd>& a) {
  return a && a->node ? &a->node->results[size_t(a->output)] : nullptr;
}

Tensor viewed(const Node& node, const Tensor& whole) {
  OpArgs args(1, 1);
  point(args.in[0], whole);
  args.attrs = node.attrs;
  const Index offset = node.row->view(args);
  return as_strided(whole, args.out[0].shape, args.out[0].strides, whole.impl()->offset + offset);
}

void append(Node& node, std::vector<Part>& parts) {
  Node::Result* of = result(node.operands[0].gradient_to);
  const Arg &x = node.operands[0].arg, &y = node.results[0].arg;
  if (!of || x.shape.rank() != y.shape.rank()) return;
  Part part{of, -1, 0, 0, &node};
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (x.shape[i] == y.shape[i]) continue;
    if (part.axis >= 0 || x.shape[i] < y.shape[i]) return;
    if (y.shape[i] > 1 && x.strides[i] != y.strides[i]) return;  // leaves some out
    part.axis = i;
  }
  if (part.axis < 0) return;
  OpArgs args(1, 1);
  args.in[0].shape = x.shape;
  args.in[0].strides = contiguous_strides(x.shape);
  args.attrs = node.attrs;
  part.begin = node.row->view(args) / args.in[0].strides[part.axis];
  part.end = part.begin + y.shape[part.axis];
  parts.push_back(part);
}

/// Of one result, in order: whether it is used in nothing else, and they share no element.
bool apart(std::span<const Part> parts) {
  const Arg& x = parts[0].of->arg;
  if (int(parts.size()) != parts[0].of->uses) return false;
  if (!(dense_strides(x.shape, x.strides) == x.strides)) return false;
  for (size_t k = 1; k < parts.size(); ++k)
    if (parts[k].axis != parts[0].axis || parts[k].begin < parts[k - 1].end) return false;
  return true;
}

/// The gradient that a part is in, laid out as what it is of.
const Tensor& whole(const Node& part) {
  Node::Result& r = *result(part.operands[0].gradient_to);
  if (!r.gradient.defined()) {
    r.gradient =
        as_strided(empty(r.arg.shape, r.arg.dtype, r.arg.device), r.arg.shape, r.arg.strides, 0);
    if (r.gaps) r.gradient.zero_();
  }
  return r.gradient;
}

}  // namespace

void find(std::span<Node* const> nodes) {
  std::vector<Part> all;
  for (Node* node : nodes) {
    node->part = false;
    for (const auto& operand : node->operands)
      if (Node::Result* r = result(operand.gradient_to)) ++r->uses;
    if (node->row->view && !node->row->unview) append(*node, all);
  }
  auto key = [](const Part& p) { return std::tuple(p.of, p.begin, p.end); };
  std::sort(all.begin(), all.end(), [&](const Part& a, const Part& b) { return key(a) < key(b); });
  for (size_t first = 0, last = 0; first < all.size(); first = last) {
    Index room = all[first].of->arg.shape[all[first].axis];
    while (last < all.size() && all[last].of == all[first].of)
      room -= all[last].end - all[last].begin, ++last;
    const std::span<Part> parts(&all[first], last - first);
    if (!apart(parts)) continue;
    parts[0].of->gaps = room > 0;
    for (Part& p : parts) p.node->part = true;
  }
}

Tensor place(const Autograd& target, DType d) {
  const Node* node = target.node.get();
  if (!node || !(node->part || node->row->unview) || node->results[0].uses != 1 ||
      !node->hooks.empty() || node->results[0].arg.dtype != d)
    return {};
  const Tensor in = node->part ? whole(*node) : place(*node->operands[0].gradient_to, d);
  return in.defined() ? viewed(*node, in) : in;
}

void put(Node& part) {
  const Tensor g = std::exchange(part.results[0].gradient, {});
  Node::Result& r = *result(part.operands[0].gradient_to);
  if (!g.defined() && !r.gradient.defined()) return void(r.gaps = true);
  Tensor to = viewed(part, whole(part));
  if (!g.defined()) return void(to.zero_());
  if (g.data() == to.data() && g.strides() == to.strides()) return;
  Timed timed(part.row->name, Phase::backward);
  copy_elements(g, to);
}

}  // namespace minim::parts
