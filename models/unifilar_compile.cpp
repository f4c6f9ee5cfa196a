#include <map>

#include "minim/core/error.h"
#include "minim/models/unifilar.h"

namespace minim::models {
namespace {

/// A beginning of texts: the mass of all texts through it is shared by its children and by the
/// texts that end here.
struct Node {
  std::map<int32_t, int32_t> children;  // symbol -> node
  double mass = 0, ending = 0;
  int32_t next = -1;  // context after the text that ends here
};

class Compiler {
 public:
  Compiler(const std::function<std::vector<Production>(int32_t)>& grammar,
           std::string_view alphabet)
      : grammar_(grammar), alphabet_(alphabet) {}

  UnifilarSource run(int32_t start) {
    root_of(start);
    for (size_t i = 0; i < order_.size(); ++i) grow(order_[i]);  // order_ grows meanwhile
    return {states(), int64_t(alphabet_.size())};
  }

 private:
  int32_t root_of(int32_t context) {
    const auto [at, is_new] = roots_.try_emplace(context, int32_t(nodes_.size()));
    if (is_new) {
      order_.push_back(context);
      nodes_.emplace_back();
    }
    return at->second;
  }

  void grow(int32_t context) {
    const std::vector<Production> productions = grammar_(context);
    if (productions.empty()) fail("context ", context, " has no productions");
    for (const Production& production : productions) {
      if (production.text.empty()) fail("context ", context, " has a production without text");
      root_of(production.next);
      add(roots_.at(context), production);
    }
  }

  void add(int32_t root, const Production& production) {
    int32_t node = root;
    nodes_[size_t(node)].mass += production.weight;
    for (char c : production.text) {
      const auto [at, is_new] =
          nodes_[size_t(node)].children.try_emplace(symbol_of(c), int32_t(nodes_.size()));
      node = at->second;
      if (is_new) nodes_.emplace_back();
      nodes_[size_t(node)].mass += production.weight;
    }
    Node& last = nodes_[size_t(node)];
    if (last.next >= 0) fail("a context has the text '", production.text, "' twice");
    last.ending = production.weight;
    last.next = production.next;
  }

  int32_t symbol_of(char c) const {
    const size_t at = alphabet_.find(c);
    if (at == alphabet_.npos) fail("'", c, "' is not in the alphabet");
    return int32_t(at);
  }

  /// Where only one text ends and none goes on, the state is the root of the context after it.
  int32_t state_of(int32_t node) const {
    const Node& n = nodes_[size_t(node)];
    return n.children.empty() ? roots_.at(n.next) : node;
  }

  std::vector<Edge> edges(const Node& node) const {
    std::vector<Edge> edges;
    const auto add_children = [&](const Node& of, double share) {
      for (const auto& [symbol, child] : of.children)
        edges.push_back({symbol, state_of(child), share * nodes_[size_t(child)].mass / of.mass});
    };
    add_children(node, 1);
    if (node.next >= 0)  // a root has no ending: productions have text
      add_children(nodes_[size_t(roots_.at(node.next))], node.ending / node.mass);
    return edges;
  }

  /// Numbers the nodes that are states; the start is node 0.
  std::vector<std::vector<Edge>> states() const {
    std::vector<int32_t> number(nodes_.size(), -1);
    int32_t count = 0;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (state_of(int32_t(i)) == int32_t(i)) number[i] = count++;
    std::vector<std::vector<Edge>> states;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (number[i] < 0) continue;
      states.push_back(edges(nodes_[i]));
      for (Edge& e : states.back()) e.next = number[size_t(e.next)];
    }
    return states;
  }

  const std::function<std::vector<Production>(int32_t)>& grammar_;
  std::string_view alphabet_;
  std::vector<Node> nodes_;
  std::map<int32_t, int32_t> roots_;  // context -> node
  std::vector<int32_t> order_;        // contexts as they were met
};

}  // namespace

UnifilarSource compile(const std::function<std::vector<Production>(int32_t)>& grammar,
                       int32_t start, std::string_view alphabet) {
  return Compiler(grammar, alphabet).run(start);
}

}  // namespace minim::models
