#include "minim/ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "minim/core/pool.h"
#include "minim/ops/functional.h"

namespace minim {
namespace {

constexpr int kEllipsis = 0, kUnnamed = 256;  // kUnnamed + i: the axis of `...`, i from the last

struct Subscript {
  int label;
  size_t at;  ///< in the equation
};
using Labels = std::vector<int>;

/// A tensor whose axes have labels, no two the same.
struct Term {
  Tensor x;
  Labels labels;
};

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
Labels filter(const Labels& labels, auto wanted) {
  Labels out;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(out), wanted);
  return out;
}

struct Equation {
  std::string_view text;
  std::vector<std::vector<Subscript>> operands{{}};
  std::vector<size_t> starts{0};
  std::vector<Subscript> result;
  bool explicit_result = false;

  template <class... Parts>
  [[noreturn]] void refuse(size_t at, const Parts&... parts) const {
    fail("[einsum] '", text, "' at position ", at, ": ", parts...);
  }
  explicit Equation(std::string_view equation) : text(equation) {
    for (size_t i = 0; i < text.size(); ++i) {
      std::vector<Subscript>& side = explicit_result ? result : operands.back();
      if (std::isalpha(static_cast<unsigned char>(text[i]))) {
        side.push_back({text[i], i});
      } else if (text.substr(i, 3) == "...") {
        for (const Subscript& s : side)
          if (s.label == kEllipsis) refuse(i, "a second '...' of one operand");
        side.push_back({kEllipsis, i});
        i += 2;
      } else if (text[i] == ',' && !explicit_result) {
        operands.emplace_back();
        starts.push_back(i + 1);
      } else if (text.substr(i, 2) == "->" && !explicit_result) {
        explicit_result = true;
        ++i;
      } else if (text[i] != ' ') {
        refuse(i, "'", text[i], "' cannot stand here; subscripts are letters and '...', operands ",
               "are parted by ',' and the result follows one '->'");
      }
    }
  }
};

class Einsum {
 public:
  Einsum(std::string_view text, std::span<const Tensor> operands) : equation_(text) {
    if (operands.size() != equation_.operands.size())
      fail("[einsum] '", text, "' has ", equation_.operands.size(), " operands, ", operands.size(),
           " were given");
    for (size_t k = 0; k < operands.size(); ++k) label(operands[k], k);
    for (size_t k = 0; k < operands.size(); ++k) terms_.push_back(term(operands[k], labels_[k]));
    find_result();
  }

  Tensor run() const {
    Term product = terms_[0];
    for (size_t k = 1; k < terms_.size(); ++k) {
      Labels needed = result_;
      for (size_t later = k + 1; later < terms_.size(); ++later)
        needed.insert(needed.end(), terms_[later].labels.begin(), terms_[later].labels.end());
      product = contract(product, terms_[k], needed);
    }
    return ordered(summed(product, [&](int label) { return has(result_, label); }), result_);
  }

 private:
  /// Names every axis of operand k.
  void label(const Tensor& x, size_t k) {
    const std::vector<Subscript>& subscripts = equation_.operands[k];
    const auto dots = std::find_if(subscripts.begin(), subscripts.end(),
                                   [](const Subscript& s) { return s.label == kEllipsis; });
    const int named = int(subscripts.size()) - (dots != subscripts.end());
    const int unnamed = x.rank() - named;
    if (unnamed < 0 || (unnamed > 0 && dots == subscripts.end()))
      equation_.refuse(equation_.starts[k], "operand ", k, " has ", named, " subscripts, but ",
                       x.rank(), " axes: ", x.shape());
    Labels labels;
    for (const Subscript& s : subscripts) {
      for (int i = unnamed; s.label == kEllipsis && i-- > 0;)
        measure(x, labels, kUnnamed + i, s.at, k);
      if (s.label != kEllipsis) measure(x, labels, s.label, s.at, k);
    }
    unnamed_ = std::max(unnamed_, dots != subscripts.end() ? unnamed : 0);
    labels_.push_back(labels);
  }
  void measure(const Tensor& x, Labels& labels, int label, size_t at, size_t k) {
    const Index n = x.size(Index(labels.size()));
    Index& size = sizes_.try_emplace(label, n).first->second;
    if (size != n && size != 1 && n != 1)
      equation_.refuse(at, "the axis is ", n, " in operand ", k, " of shape ", x.shape(), ", but ",
                       size, " before");
    if (size == 1) size = n;
    labels.push_back(label);
  }
  /// Drops axes of size 1 that are broadcast, and takes diagonals.
  Term term(Tensor x, Labels labels) const {
    for (size_t i = labels.size(); i-- > 0;)
      if (x.shape()[int(i)] == 1 && sizes_.at(labels[i]) != 1) {
        x = x.select(Index(i), 0);
        labels.erase(labels.begin() + std::ptrdiff_t(i));
      }
    for (size_t j = labels.size(); j-- > 0;) {
      const auto first = std::find(labels.begin(), labels.end(), labels[j]);
      const size_t i = size_t(first - labels.begin());
      if (i == j) continue;
      Dims order;
      for (size_t a = 0; a < labels.size(); ++a)
        if (a != i && a != j) order.push_back(Index(a));
      order.push_back(Index(i)), order.push_back(Index(j));
      const Index n = x.shape()[int(j)];
      Shape shape = x.permute(order).shape();
      shape.erase(shape.rank() - 1);
      shape[shape.rank() - 1] = n * n;
      x = x.permute(order).reshape(shape).slice(-1, 0, n * n, n + 1);
      const int label = labels[j];
      labels.erase(labels.begin() + std::ptrdiff_t(j));
      labels.erase(labels.begin() + std::ptrdiff_t(i));
      labels.push_back(label);
      j = labels.size();
    }
    return {x, labels};
  }
  void find_result() {
    for (const Subscript& s : equation_.result) {
      for (int i = unnamed_; s.label == kEllipsis && i-- > 0;) result_.push_back(kUnnamed + i);
      if (s.label == kEllipsis) continue;
      if (!sizes_.contains(s.label))
        equation_.refuse(s.at, "'", char(s.label), "' is in no operand");
      if (has(result_, s.label))
        equation_.refuse(s.at, "'", char(s.label), "' is in the result twice");
      result_.push_back(s.label);
    }
    if (equation_.explicit_result) return;
    for (int i = unnamed_; i-- > 0;) result_.push_back(kUnnamed + i);
    for (const auto& [label, size] : sizes_) {
      int times = 0;
      for (const Labels& labels : labels_)
        times += int(std::count(labels.begin(), labels.end(), label));
      if (label < kUnnamed && times == 1) result_.push_back(label);
    }
  }

  /// The sum over the axes whose labels are not wanted.
  static Term summed(const Term& t, auto wanted) {
    Dims axes;
    for (size_t i = 0; i < t.labels.size(); ++i)
      if (!wanted(t.labels[i])) axes.push_back(Index(i));
    if (axes.rank() == 0) return t;
    return {sum(t.x, {.axes = axes}), filter(t.labels, wanted)};
  }
  static Tensor ordered(const Term& t, const Labels& order) {
    Dims axes;
    for (int label : order)
      axes.push_back(std::find(t.labels.begin(), t.labels.end(), label) - t.labels.begin());
    return t.x.permute(axes);
  }
  Index size_of(const Labels& labels) const {
    Index n = 1;
    for (int label : labels) n *= sizes_.at(label);
    return n;
  }
  /// x and y over the labels that are needed, as a batch of matrix products.
  Term contract(Term x, Term y, const Labels& needed) const {
    auto useful = [&](const Term& other) {
      return [&](int label) { return has(needed, label) || has(other.labels, label); };
    };
    x = summed(x, useful(y));
    y = summed(y, useful(x));
    auto in = [](const Term& t, bool yes) {
      return [&t, yes](int l) { return has(t.labels, l) == yes; };
    };
    const Labels both = filter(x.labels, in(y, true));
    const Labels batch = filter(both, [&](int l) { return has(needed, l); }),
                 inner = filter(both, [&](int l) { return !has(needed, l); }),
                 rows = filter(x.labels, in(y, false)), columns = filter(y.labels, in(x, false));
    auto matrices = [&](const Term& t, const Labels& a, const Labels& b) {
      Labels order = batch;
      order.insert(order.end(), a.begin(), a.end());
      order.insert(order.end(), b.begin(), b.end());
      return ordered(t, order).reshape({size_of(batch), size_of(a), size_of(b)});
    };
    Labels labels = batch;
    labels.insert(labels.end(), rows.begin(), rows.end());
    labels.insert(labels.end(), columns.begin(), columns.end());
    Shape shape;
    for (int label : labels) shape.push_back(sizes_.at(label));
    return {matmul(matrices(x, rows, inner), matrices(y, inner, columns)).reshape(shape), labels};
  }

  Equation equation_;
  std::vector<Labels> labels_;  ///< of each operand, in the order of its axes
  std::map<int, Index> sizes_;
  int unnamed_ = 0;  ///< the most axes that a `...` stands for
  std::vector<Term> terms_;
  Labels result_;
};

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) try {
  return Einsum(equation, operands).run();
} catch (const std::bad_alloc&) {
  pool::fail_full("einsum");
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}

}  // namespace minim
