// ops/contract.h -- what an op's struct (one file each) says about the op, all of it in one
// aggregate, so that a misspelt property does not compile. ops/row.h makes the row from it.
//
// A struct derives from its kind and has, beside `static constexpr Spec spec{...}`,
//   Pointwise   forward(x...) and vjp(g, y, x..., d) on scalars (core/loops.h)
//   Rowwise     axes(attrs, rank), forward(lane, ...) and vjp(lane, ...) (core/rowwise.h)
//   View        view(OpArgs&), which sets out[0]'s shape and strides and returns the offset, in
//               elements, and backward(OpArgs&)
//   Structured  forward(OpArgs&) and, where it is differentiable, backward(OpArgs&)
// and examples(); a pointwise op has broadcast_examples without saying so. variants() are the
// attributes that they are made with, by default the default ones.
#pragma once
#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <vector>

#include "minim/core/functor.h"
#include "minim/core/op_args.h"
#include "minim/core/wide.h"

namespace minim {

/// The result's dtype: `same` is what promotion or the policy chose; `attribute` is set by the op's
/// shape rule.
enum class Result : uint8_t { same, f32, boolean, i64, attribute };

enum class Accepts : uint8_t { floating, any, integer, boolean };
/// Where an operand's test values come from, so that its derivative exists there.
enum class Domain : uint8_t { any, off_zero, small, positive, probability, index };
const char* name_of(Domain domain);

struct Operand {
  const char* name = nullptr;
  Accepts accepts = Accepts::floating;
  Domain domain = Domain::any;
  bool optional = false;
  Along along = Along::row;  ///< rowwise ops only
};

/// A number among the attributes. It must fit what kernels compute in, and where a result may be
/// that very number (`shown`) the result's dtype.
struct NumberAttr {
  const char* name = nullptr;
  double (*of)(const Attrs&) = nullptr;
  bool shown = false;
};

/// Which operands and outputs backward reads, as bits.
struct Saves {
  uint32_t inputs = 0, outputs = 0;
};

/// At most kMost of them, by value: an array whose length is counted.
template <class T, int kMost>
class ListOf {
 public:
  constexpr ListOf() = default;
  constexpr ListOf(std::initializer_list<T> items) : size_(items.size()) {
    std::copy(items.begin(), items.end(), items_.begin());  // too many do not compile
  }
  constexpr size_t size() const { return size_; }
  constexpr const T& operator[](size_t k) const { return items_[k]; }
  constexpr const T* begin() const { return items_.data(); }
  constexpr const T* end() const { return begin() + size_; }

 private:
  std::array<T, size_t(kMost)> items_{};
  size_t size_ = 0;
};

/// A function that an op may leave out, which a constant expression can ask: under sanitizers GCC
/// compares no address of a function there.
template <class F>
class Optional {
 public:
  constexpr Optional() = default;
  constexpr Optional(F* f) : f_(f), given_(true) {}
  constexpr bool given() const { return given_; }
  constexpr operator F*() const { return f_; }

 private:
  F* f_ = nullptr;
  bool given_ = false;
};

/// What the table of ops knows of an op beside its kernels. Bits count operands from 0.
struct Spec {
  static constexpr int kAll = 0;
  static constexpr uint32_t kByKind = ~uint32_t{0};

  ListOf<Operand, kMaxOperands> operands;
  ListOf<Along, kMaxOutputs> outputs{Along::own};  ///< each that the kernel makes
  int returned = kAll;  ///< how many of them the caller sees; the rest are statistics for backward
  Saves saves{};
  Result result = Result::same;
  bool integers = false;    ///< has an i64 kernel: integers and bool stay; else they become f32
  bool same_dtype = false;  ///< refuses mixed floating operands outside autocast
  bool random = false;      ///< draws numbers; a pointwise op takes one in [0, 1) last
  bool strided = false;     ///< its CPU kernels write results and gradients of any strides
  bool wide = false;        ///< rowwise: forward<W> and vjp<W> say whether W sufficed (core/wide.h)
  bool differentiable = true;
  uint32_t shown = 0;  ///< operands that a result may be, and does not only depend on: a number
                       ///< there that the result's dtype rounds to 0 is warned of: bits
  uint32_t over = kByKind;  ///< operands whose saved values backward may overwrite with their
                            ///< gradients, as bits; by kind: what a pointwise op saves, the rows
                            ///< of a rowwise one
  ListOf<NumberAttr, 4> numbers{};  ///< among the attributes
  const char* instead = nullptr;    ///< for banned rows: what to use

  /// Sets the outputs' shapes, dtypes for Result::attribute, and strides where they are not
  /// row-major. By default pointwise ops broadcast, and rowwise ones go by `outputs`.
  /// @throws Error
  Optional<void(OpArgs&)> infer{};
  /// Rowwise ops: called after the shapes are set. @throws Error
  Optional<void(OpArgs&)> check{};
  /// For views of all elements: the strides that make the result's gradient `g` the operand's;
  /// false where only a copy does.
  Optional<bool(const OpArgs&, const Arg& g, Strides&)> unview{};
};

/// One call that the generated tests make.
struct Example {
  std::vector<Shape> shapes;  ///< per operand; a missing optional operand has the shape {-1}
  Attrs attrs;
  Index classes = 0;  ///< Domain::index values lie in [0, classes)
};
/// Those of an op with attributes of type A.
template <class A = NoAttrs>
struct Examples : std::vector<Example> {
  const Shape none{-1};  ///< of an operand that is not given
  void add(std::vector<Shape> shapes, const A& attrs = {}, Index classes = 0) {
    push_back({std::move(shapes), Attrs(attrs), classes});
  }
};

/// The kernel that computes in f64 where the op does, else the one in fp32.
inline void run_floating(OpArgs& args, Kernel in_f32, Kernel in_f64) {
  (compute_in(args.dtype) == Compute::f64 ? in_f64 : in_f32)(args);
}

namespace op {

struct Pointwise {};
struct Rowwise {};
struct View {};
struct Structured {};

/// d[i] = g * slope: write forward and slope(x, y), get vjp.
template <class Derived>
struct Unary : Pointwise {
  template <class A>
  MINIM_HD static void vjp(A g, A y, A x, A* d) {
    d[0] = g * Derived::slope(x, y);
  }
};

/// Two operands of any dtype in, bool out, no gradient.
struct Comparison : Pointwise {
  static constexpr Spec spec{.operands = {{"x"}, {"y"}},
                             .result = Result::boolean,
                             .integers = true,
                             .differentiable = false};
};

template <auto>
struct MemberOf;
template <class A, double A::*member>
struct MemberOf<member> {
  static double read(const minim::Attrs& attrs) { return attrs.as<A>().*member; }
};
/// `.numbers = {number<&Attrs::eps>("eps")}`
template <auto member>
constexpr NumberAttr number(const char* name, bool shown = false) {
  return {name, MemberOf<member>::read, shown};
}

/// Operands of equal shapes, of every kind, and broadcast; with each of the op's variants().
template <class Op>
std::vector<Example> broadcast_examples() {
  std::vector<attrs_t<Op>> variants(1);
  if constexpr (requires { Op::variants(); }) variants = Op::variants();
  constexpr size_t n = kOperands<Op>;
  Examples<attrs_t<Op>> all;
  for (const auto& attrs : variants) {
    for (const Shape& x : {Shape{}, Shape{0}, Shape{1}, Shape{37}, Shape{3, 5}, Shape{2, 3, 4}})
      all.add(std::vector(n, x), attrs);
    std::vector<Shape> broadcast(n, Shape{3, 1});  // in either direction
    if (n > 1) broadcast[1] = {2, 1, 4}, all.add(broadcast, attrs);
  }
  return all;
}

/// What a rowwise op reads and writes: an array of A for each operand or output (core/rowwise.h).
template <class A>
using In = const A* const*;
template <class A>
using Out = A* const*;

}  // namespace op
}  // namespace minim
