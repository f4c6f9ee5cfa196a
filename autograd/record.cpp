// autograd/record.cpp -- how the tape grows: what a call leaves on it, and what a tensor says of
// it.
#include <atomic>

#include "minim/autograd/node.h"

namespace minim {
namespace {

std::atomic<uint64_t> next_sequence{0};

/// Nodes whose last owner is being destroyed wait here, so that freeing a chain is a loop.
struct Graveyard {
  std::vector<std::shared_ptr<Node>> nodes;
  bool emptying = false;
};
thread_local Graveyard graveyard;

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

Tensor Tensor::grad() const { return impl_->autograd ? impl_->autograd->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined() && !(grad.shape() == shape()))
    fail("a gradient of shape ", grad.shape(), " does not fit ", origin(*this), " of shape ",
         shape());
  Autograd& a = autograd_of(*this);
  a.grad = grad;
  a.scale = 1;
}

Tensor Tensor::detach() const { return as_strided(*this, shape(), strides(), impl_->offset); }

}  // namespace minim
