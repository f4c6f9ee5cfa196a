// tools/op_attrs.h -- the attributes of the ops by the names they have in C++, for pages and for
// calls that are written as text.
#pragma once
#include <string>
#include <vector>

#include "minim/ops/op.h"

namespace minim {

/// f("name", member) for every attribute in `a`, whatever op's it is. A new name gets its line
/// here; where it has none, attributes_of() of its op is an error.
template <class A, class F>
void each_attr(A& a, F f) {
  if constexpr (requires { a.axes; }) f("axes", a.axes);
  if constexpr (requires { a.axis; }) f("axis", a.axis);
  if constexpr (requires { a.dim; }) f("dim", a.dim);
  if constexpr (requires { a.keepdim; }) f("keepdim", a.keepdim);
  if constexpr (requires { a.dtype; }) f("dtype", a.dtype);
  if constexpr (requires { a.device; }) f("device", a.device);
  if constexpr (requires { a.p; }) f("p", a.p);
  if constexpr (requires { a.eps; }) f("eps", a.eps);
  if constexpr (requires { a.lo; }) f("lo", a.lo), f("hi", a.hi);
  if constexpr (requires { a.kernel_size; }) f("kernel_size", a.kernel_size);
  if constexpr (requires { a.stride; }) f("stride", a.stride);
  if constexpr (requires { a.padding; }) f("padding", a.padding);
  if constexpr (requires { a.dilation; }) f("dilation", a.dilation);
  if constexpr (requires { a.groups; }) f("groups", a.groups);
  if constexpr (requires { a.num_groups; }) f("num_groups", a.num_groups);
  if constexpr (requires { a.count_include_pad; }) f("count_include_pad", a.count_include_pad);
  if constexpr (requires { a.reduction; }) f("reduction", a.reduction);
  if constexpr (requires { a.label_smoothing; }) f("label_smoothing", a.label_smoothing);
  if constexpr (requires { a.ignore_index; }) f("ignore_index", a.ignore_index);
  if constexpr (requires { a.log_target; }) f("log_target", a.log_target);
  if constexpr (requires { a.beta; }) f("beta", a.beta);
  if constexpr (requires { a.threshold; }) f("threshold", a.threshold);
  if constexpr (requires { a.negative_slope; }) f("negative_slope", a.negative_slope);
  if constexpr (requires { a.tanh; }) f("tanh", a.tanh);
  if constexpr (requires { a.correction; }) f("correction", a.correction);
  if constexpr (requires { a.order; }) f("order", a.order);
  if constexpr (requires { a.shape; }) f("shape", a.shape);
  if constexpr (requires { a.begin; }) f("begin", a.begin), f("end", a.end);
  if constexpr (requires { a.step; }) f("step", a.step);
  if constexpr (requires { a.theta; }) f("theta", a.theta);
  if constexpr (requires { a.offset; }) f("offset", a.offset);
  if constexpr (requires { a.causal; }) f("causal", a.causal);
  if constexpr (requires { a.scale; }) f("scale", a.scale);
  if constexpr (requires { a.dropout; }) f("dropout", a.dropout);
  if constexpr (requires { a.kernel; }) f("kernel", a.kernel);
}

struct Attribute {
  std::string name, type, value;  ///< as in C++; the default
};
/// Those of a row of ops.def, in the order of its struct. @throws Error where each_attr() does not
/// know one.
std::vector<Attribute> attributes_of(const OpRow& row);

}  // namespace minim
