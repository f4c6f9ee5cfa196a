#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "minim/autograd/node.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

std::atomic<uint64_t> next_sequence{0}, next_visit{0};

/// Nodes whose last owner is being destroyed wait here, so that freeing a chain is a loop.
struct Graveyard {
  std::vector<std::shared_ptr<Node>> nodes;
  bool emptying = false;
};
thread_local Graveyard graveyard;

void check_version(const Saved& saved, const Node& node, const char* role, size_t k) {
  if (saved.tensor.version() == saved.version) return;
  fail("[", node.row->name, " backward] ", role, " ", k, " (", saved.tensor.shape(), " ",
       name_of(saved.tensor.dtype()),
       saved.tensor.name().empty() ? "" : ", '" + saved.tensor.name() + "'",
       ") was changed in place: it is at version ", saved.tensor.version(),
       ", backward needs version ", saved.version, "; use an out-of-place op, or clone() first");
}

/// A leaf sums in fp32 even when it is stored in 16 bits.
DType grad_dtype(const Autograd& target, DType operand) {
  return !target.node && is_half(operand) ? DType::f32 : operand;
}

/// Adds into `sum` in fp32 (f64 for f64). The first addend is taken as it is.
void accumulate(Tensor& sum, const Tensor& addend) {
  if (!sum.defined()) {
    sum = addend;
    return;
  }
  DType wide = promote_types(promote_types(sum.dtype(), addend.dtype()), DType::f32);
  if (sum.dtype() == wide && sum.is_contiguous() && sum.impl()->storage.use_count() == 1) {
    OpArgs args;
    args.n_in = 2;
    args.n_out = 1;
    args.dtype = wide;
    args.in[0] = args.out[0] = arg_of(sum);
    args.in[1] = arg_of(addend);
    Op::add.forward[size_t(sum.device().kind)](args);
    return;
  }
  Tensor wider = empty(sum.shape(), wide, sum.device());
  copy_elements(sum, wider);
  sum = wider;
  accumulate(sum, addend);
}

void accumulate_leaf(Autograd& leaf, const Tensor& addend, double scale) {
  if (leaf.grad.defined() && leaf.scale != scale)
    fail("gradients with loss scale ", scale, " would be added to gradients with loss scale ",
         leaf.scale,
         "; unscale and zero_grad before the next backward, or keep one scale while accumulating");
  leaf.scale = scale;
  bool own = addend.is_contiguous() && addend.shared().use_count() == 1 &&
             addend.impl()->storage.use_count() == 1;
  Tensor mine = addend;
  if (!leaf.grad.defined() && (!own || is_half(addend.dtype()))) {
    mine = empty(addend.shape(), is_half(addend.dtype()) ? DType::f32 : addend.dtype(),
                 addend.device());
    copy_elements(addend, mine);
  }
  accumulate(leaf.grad, mine);
}

void deliver(Autograd& target, const Tensor& gradient, double scale) {
  if (target.node)
    accumulate(target.node->grad_out[size_t(target.output)], gradient);
  else
    accumulate_leaf(target, gradient, scale);
}

/// Everything `root` was made from, newest first.
std::vector<Node*> reachable(Node* root) {
  uint64_t visit = ++next_visit;
  std::vector<Node*> nodes;
  auto meet = [&](Node* n) {
    if (!n || n->visit == visit) return;
    n->visit = visit;
    nodes.push_back(n);
  };
  meet(root);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const auto& input : nodes[i]->inputs)
      if (input) meet(input->node.get());
  std::sort(nodes.begin(), nodes.end(), [](Node* a, Node* b) { return a->sequence > b->sequence; });
  return nodes;
}

/// Both for a gradient that is set and for one that backward starts from.
void check_gradient(const Tensor& gradient, const Tensor& x) {
  if (!is_floating(gradient.dtype()) || !(gradient.shape() == x.shape()))
    fail("a gradient that is ", name_of(gradient.dtype()), gradient.shape(), " does not fit ",
         origin(x), " of shape ", x.shape(), "; it is floating and of the same shape");
}

/// The loss scale that gradients through these nodes carry.
double loss_scale(const std::vector<Node*>& nodes) {
  double scale = 1;
  for (const Node* n : nodes) {
    if (n->scale == 1 || n->scale == scale) continue;
    if (scale != 1)
      fail("one backward() through losses with scales ", scale, " and ", n->scale,
           "; use one scale between updates");
    scale = n->scale;
  }
  return scale;
}

void run(Node& node, double scale) {
  if (node.released)
    fail("[", node.row->name,
         "] backward through the same graph a second time: its saved tensors are gone; pass "
         "retain_graph = true to the first backward()");
  const OpRow& row = *node.row;
  OpArgs args;
  args.n_in = int(node.in.size());
  args.n_out = int(node.out.size());
  args.dtype = node.dtype;
  args.attrs = node.attrs;
  args.rng = node.rng;
  std::vector<Tensor> gradients(node.in.size());
  for (size_t k = 0; k < node.in.size(); ++k) {
    args.in[k] = node.in[k];
    if (node.saved_in[k].tensor.defined()) {
      check_version(node.saved_in[k], node, "operand", k);
      args.in[k].data = node.saved_in[k].tensor.data();
    }
    if (!node.inputs[k]) continue;
    DType d = grad_dtype(*node.inputs[k], node.in[k].dtype);
    if (node.scale != 1) d = promote_types(d, DType::f32);  // a loss scale need not fit f16
    gradients[k] = empty(node.in[k].shape, d);
    args.grad_in[k] = arg_of(gradients[k]);
  }
  bool any = false;
  for (size_t k = 0; k < node.out.size(); ++k) {
    args.out[k] = node.out[k];
    if (node.saved_out[k].tensor.defined()) {
      check_version(node.saved_out[k], node, "result", k);
      args.out[k].data = node.saved_out[k].tensor.data();
    }
    if (!node.grad_out[k].defined()) continue;
    any = true;
    args.grad_out[k] = arg_of(node.grad_out[k]);
  }
  if (!any) return;
  row.backward[0](args);
  if (Probe* probe = Probe::current()) probe->after_op(row, args, true);
  for (size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) {
      Tensor gradient = std::move(gradients[k]);
      deliver(*node.inputs[k], gradient, scale);
    }
}

}  // namespace

Node::~Node() {
  Graveyard& g = graveyard;
  for (auto& input : inputs)
    if (input && input.use_count() == 1 && input->node) g.nodes.push_back(std::move(input->node));
  if (g.emptying) return;
  g.emptying = true;
  while (!g.nodes.empty()) {
    std::shared_ptr<Node> node = std::move(g.nodes.back());
    g.nodes.pop_back();
  }
  g.emptying = false;
}

Arg arg_of(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.data(), x.dtype(), x.shape(), x.strides(), true};
}

Autograd& autograd_of(const Tensor& x) {
  if (!x.impl()->autograd) x.impl()->autograd = std::make_shared<Autograd>();
  return *x.impl()->autograd;
}

std::string origin(const Tensor& x) {
  if (!x.name().empty()) return "'" + x.name() + "'";
  const auto& a = x.impl()->autograd;
  return a && a->node ? std::string("the result of ") + a->node->row->name : "a tensor";
}

void record(const OpRow& row, const OpArgs& args, std::span<const Tensor> operands,
            std::span<const Tensor> outputs) {
  auto node = std::make_shared<Node>();
  node->row = &row;
  node->sequence = ++next_sequence;
  node->dtype = args.dtype;
  node->attrs = args.attrs;
  node->rng = args.rng;
  auto save = [](const Tensor& x, bool wanted) {
    if (!wanted || !x.defined()) return Saved{};
    Tensor alias = as_strided(x, x.shape(), x.strides(), x.impl()->offset);
    return Saved{alias, x.version()};
  };
  auto shape_only = [](Arg a) {
    a.data = nullptr;
    return a;
  };
  for (size_t k = 0; k < operands.size(); ++k) {
    const Tensor& x = operands[k];
    node->in.push_back(shape_only(args.in[k]));
    node->saved_in.push_back(save(x, row.saves.inputs >> k & 1));
    bool wanted = x.defined() && x.requires_grad() && is_floating(x.dtype());
    node->inputs.push_back(wanted ? x.impl()->autograd : nullptr);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    node->out.push_back(shape_only(args.out[k]));
    node->saved_out.push_back(save(outputs[k], row.saves.outputs >> k & 1));
  }
  node->grad_out.resize(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (int(k) >= row.returned || !is_floating(outputs[k].dtype())) continue;
    Autograd& a = autograd_of(outputs[k]);
    a.requires_grad = true;
    a.node = node;
    a.output = int(k);
  }
}

bool Tensor::requires_grad() const {
  return impl_ && impl_->autograd && impl_->autograd->requires_grad;
}

const Tensor& Tensor::set_requires_grad(bool on) const {
  if (on && !is_floating(dtype()))
    fail("only floating tensors can require gradients, this one is ", name_of(dtype()));
  autograd_of(*this).requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const { return impl()->autograd ? impl()->autograd->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined()) check_gradient(grad, *this);
  Autograd& a = autograd_of(*this);
  a.grad = grad;
  a.scale = 1;
}

Tensor Tensor::detach() const { return as_strided(*this, shape(), strides(), impl()->offset); }

void Tensor::backward(bool retain_graph) const {
  if (numel() != 1)
    fail("backward() without a gradient needs a loss of one element, this tensor has shape ",
         shape(), "; reduce it with mean() or sum(), or pass a gradient");
  backward(full(shape(), 1, promote_types(dtype(), DType::f32)), retain_graph);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  if (!requires_grad())
    fail("backward() from ", origin(*this),
         ", which does not require gradients: no operand did, or it was made under NoGrad");
  check_gradient(gradient, *this);
  Autograd& root = *impl()->autograd;
  if (!root.node) {
    const Tensor callers = gradient;  // a second owner: it is copied, not taken
    return accumulate_leaf(root, callers, 1);
  }
  std::vector<Node*> nodes = reachable(root.node.get());
  double scale = loss_scale(nodes);
  NoGrad no_recording;
  MemoryScope kind(MemoryKind::gradients);
  try {
    deliver(root, gradient, scale);
    for (Node* node : nodes) {
      run(*node, scale);
      for (Tensor& g : node->grad_out) g = {};
      if (retain_graph || node->row->saves.inputs + node->row->saves.outputs == 0) continue;
      for (Saved& s : node->saved_in) s = {};
      for (Saved& s : node->saved_out) s = {};
      node->released = true;
    }
  } catch (...) {
    for (Node* node : nodes)
      for (Tensor& g : node->grad_out) g = {};
    throw;
  }
}

std::string dump(const Tensor& x) {
  if (!x.requires_grad() || !x.impl()->autograd->node) return "(a leaf)\n";
  std::vector<Node*> nodes = reachable(x.impl()->autograd->node.get());
  std::reverse(nodes.begin(), nodes.end());
  std::unordered_map<const void*, std::string> names;
  auto name_of_input = [&](const std::shared_ptr<Autograd>& a) -> std::string {
    if (!a) return "_";
    const void* key = a->node ? static_cast<const void*>(a->node.get()) : a.get();
    auto [it, fresh] = names.try_emplace(key, "");
    if (fresh) it->second = "leaf" + std::to_string(names.size());
    return it->second +
           (a->node && a->node->row->returned > 1 ? "." + std::to_string(a->output) : "");
  };
  std::string text;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = *nodes[i];
    std::string line;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (n.in[k].defined)
        line += " " + name_of_input(n.inputs[k]) + ":" + minim::name_of(n.in[k].dtype);
    names[&n] = "%" + std::to_string(i);
    text += "%" + std::to_string(i) + " " + minim::name_of(n.out[0].dtype) +
            to_string(n.out[0].shape) + " = " + n.row->name + line + "\n";
  }
  return text;
}

}  // namespace minim
