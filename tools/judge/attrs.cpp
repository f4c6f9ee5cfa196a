#include "minim/tools/judge/attrs.h"

#include <map>

#include "minim/ops/functional.h"

namespace minim::judge {

void Fields::finish() const {
  if (used_ != object_.size()) fail("one of the attributes ", object_.dump(), " is not known");
}

double Fields::value(const Json& json, std::type_identity<double>) {
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

Dims Fields::value(const Json& json, std::type_identity<Dims>) {
  const auto sizes = json.get<std::vector<Index>>();
  return Dims(std::span<const Index>(sizes));
}

DType Fields::value(const Json& json, std::type_identity<DType>) {
  return dtype_named(json.get<std::string>());
}

Tensor number(const Json& json) {
  if (json.is_boolean()) return Tensor(json.get<bool>());
  if (json.is_number_integer()) return Tensor(json.get<int64_t>());
  return Tensor(json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>());
}

namespace {

template <class Pair>
void read_pair(Fields& f, const char* key, Pair& to) {
  Dims both;
  f.read(key, both);
  if (both.rank() > 0) to = both.rank() == 1 ? Pair(both[0]) : Pair(both[0], both[1]);
}

template <class Reduction>
void read_reduction(Fields& f, Reduction& to) {
  std::string name;
  f.read("reduction", name);
  if (name.empty()) return;
  const std::map<std::string, Reduction> all{{"mean", Reduction::mean},
                                             {"sum", Reduction::sum},
                                             {"none", Reduction::none},
                                             {"batchmean", Reduction::batchmean}};
  to = all.at(name);
}

/// Reads whatever attributes of these names A has: one function for all rows.
template <class A>
Attrs read_attrs(Fields& f) {
  A a{};
  if constexpr (requires { a.axes; }) f.read("axes", a.axes);
  if constexpr (requires { a.keepdim; }) f.read("keepdim", a.keepdim);
  if constexpr (requires { a.dtype; }) f.read("dtype", a.dtype);
  if constexpr (requires { a.axis; }) f.read("axis", a.axis);
  if constexpr (requires { a.dim; }) f.read("dim", a.dim);
  if constexpr (requires { a.p; }) f.read("p", a.p);
  if constexpr (requires { a.eps; }) f.read("eps", a.eps);
  if constexpr (requires { a.lo; }) f.read("lo", a.lo), f.read("hi", a.hi);
  if constexpr (requires { a.kernel_size; }) read_pair(f, "kernel_size", a.kernel_size);
  if constexpr (requires { a.stride; }) read_pair(f, "stride", a.stride);
  if constexpr (requires { a.padding; }) read_pair(f, "padding", a.padding);
  if constexpr (requires { a.dilation; }) read_pair(f, "dilation", a.dilation);
  if constexpr (requires { a.groups; }) f.read("groups", a.groups);
  if constexpr (requires { a.num_groups; }) f.read("num_groups", a.num_groups);
  if constexpr (requires { a.count_include_pad; }) f.read("count_include_pad", a.count_include_pad);
  if constexpr (requires { a.reduction; }) read_reduction(f, a.reduction);
  if constexpr (requires { a.label_smoothing; }) f.read("label_smoothing", a.label_smoothing);
  if constexpr (requires { a.ignore_index; }) f.read("ignore_index", a.ignore_index);
  if constexpr (requires { a.log_target; }) f.read("log_target", a.log_target);
  if constexpr (requires { a.beta; }) f.read("beta", a.beta);
  if constexpr (requires { a.threshold; }) f.read("threshold", a.threshold);
  if constexpr (requires { a.negative_slope; }) f.read("negative_slope", a.negative_slope);
  if constexpr (requires { a.tanh; }) f.read("tanh", a.tanh);
  if constexpr (requires { a.correction; }) f.read("correction", a.correction);
  if constexpr (requires { a.order; }) f.read("order", a.order);
  if constexpr (requires { a.shape; }) f.read("shape", a.shape);
  if constexpr (requires { a.begin; }) f.read("begin", a.begin), f.read("end", a.end);
  if constexpr (requires { a.step; }) f.read("step", a.step);
  if constexpr (requires { a.causal; }) f.read("causal", a.causal);
  if constexpr (requires { a.scale; }) f.read("scale", a.scale);
  if constexpr (requires { a.dropout; }) f.read("dropout", a.dropout);
  return Attrs(a);
}

struct Entry {
  const OpRow& row;
  Attrs (*read)(Fields&);
};
const std::map<std::string, Entry> kRows{
#define OP(name, F, ...) {#name, {Op::name, read_attrs<attrs_t<op::F>>}},
#include "minim/ops/ops.def"
#undef OP
};

}  // namespace

std::vector<Tensor> call_named(const std::string& name, const std::vector<Tensor>& operands,
                               const Json& attrs) {
  Fields fields(attrs);
  if (auto results = call_function(name, operands, fields)) return fields.finish(), *results;
  const auto found = kRows.find(name);
  if (found == kRows.end()) fail("minim has no ", name);
  const OpRow& row = found->second.row;
  const Attrs read = found->second.read(fields);
  fields.finish();
  std::vector<Tensor> given = operands;
  given.resize(row.operands.size());  // the optional ones that are not given
  std::vector<Tensor> results = call(row, given, read);
  results.resize(size_t(row.returned));
  return results;
}

}  // namespace minim::judge
