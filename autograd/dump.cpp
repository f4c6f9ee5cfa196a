#include <algorithm>
#include <unordered_map>

#include "minim/autograd/node.h"

namespace minim {

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
    return it->second + (a->output > 0 ? "." + std::to_string(a->output) : "");
  };
  std::string text;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = *nodes[i];
    std::string line;
    for (const auto& [arg, saved, input] : n.operands)
      if (arg.defined) line += " " + name_of_input(input) + ":" + minim::name_of(arg.dtype);
    names[&n] = "%" + std::to_string(i);
    text += "%" + std::to_string(i) + " " + minim::name_of(n.results[0].arg.dtype) +
            to_string(n.results[0].arg.shape) + " = " + n.row->name + line + "\n";
  }
  return text;
}

std::string dump_dot(const Tensor& x) {
  std::string text = "digraph tape {\n  rankdir=BT;\n  node [shape=box];\n";
  if (!x.requires_grad() || !x.impl()->autograd->node)
    return text + "  leaf1 [shape=ellipse];\n}\n";
  std::vector<Node*> nodes = reachable(x.impl()->autograd->node.get());
  std::reverse(nodes.begin(), nodes.end());
  std::unordered_map<const void*, std::string> names;
  for (size_t i = 0; i < nodes.size(); ++i) names[nodes[i]] = "n" + std::to_string(i);
  size_t leaves = 0;
  for (const Node* n : nodes) {
    text += "  " + names[n] + " [label=\"" + n->row->name + "\\n" +
            name_of(n->results[0].arg.dtype) + to_string(n->results[0].arg.shape) +
            (n->module ? "\\n" + *n->module : "") + "\"];\n";
    for (const auto& [arg, saved, input] : n->operands) {
      if (!input) continue;
      const Autograd& a = *input;
      std::string& from = names[a.node ? static_cast<const void*>(a.node.get()) : &a];
      std::string what = name_of(arg.dtype) + to_string(arg.shape);
      if (from.empty()) {
        from = "leaf" + std::to_string(++leaves);
        text += "  " + from + " [shape=ellipse, label=\"" + from + "\\n" + what + "\"];\n";
      }
      text += "  " + from + " -> " + names[n] + " [label=\"" + what + "\"];\n";
    }
  }
  return text + "}\n";
}

}  // namespace minim
