// ops/op_struct.h -- what an op's struct (one file each) may say about it; ops/row.h reads that and
// fills the rest with defaults. Unary, the base of ops on one scalar, is in core/loops.h.
#pragma once
#include <array>
#include <vector>

#include "minim/core/rowwise.h"

namespace minim {

/// The result's dtype: `same` is what promotion or the policy chose; `attribute` is set by the op's
/// shape rule.
enum class Result : uint8_t { same, f32, boolean, i64, attribute };

enum class Accepts : uint8_t { floating, any, integer, boolean };
/// Where an operand's test values come from, so that its derivative exists there.
enum class Domain : uint8_t { any, off_zero, small, positive, probability, index };
const char* name_of(Domain domain);

struct Operand {
  const char* name;
  Accepts accepts = Accepts::floating;
  Domain domain = Domain::any;
  bool optional = false;
  Along along = Along::row;  ///< rowwise ops only
};

/// A number among the attributes. It must fit what kernels compute in, and where a result may be
/// that very number (`shown`) the result's dtype.
struct NumberAttr {
  const char* name;
  double (*of)(const Attrs&);
  bool shown = false;
};

/// Which operands and outputs backward reads, as bits.
struct Saves {
  uint32_t inputs = 0, outputs = 0;
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

template <auto>
struct MemberOf;
template <class A, double A::*member>
struct MemberOf<member> {
  static double read(const minim::Attrs& attrs) { return attrs.as<A>().*member; }
};
/// `static constexpr std::array numbers{number<&Attrs::eps>("eps")};`
template <auto member>
constexpr NumberAttr number(const char* name, bool shown = false) {
  return {name, MemberOf<member>::read, shown};
}

/// What a rowwise op reads and writes: an array of A for each operand or output (core/rowwise.h).
template <class A>
using In = const A* const*;
template <class A>
using Out = A* const*;

/// Two operands of any dtype in, bool out, no gradient.
struct Comparison {
  static constexpr size_t arity = 2;
  static constexpr bool integers = true, differentiable = false;
  static constexpr Result result = Result::boolean;
};

}  // namespace op
}  // namespace minim
