#include "minim/tools/judge/attrs.h"

#include <map>

#include "minim/ops/functional.h"
#include "minim/tools/op_attrs.h"

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

template <class T>
void read_attr(Fields& f, const char* key, T& to) {
  f.read(key, to);
}
void read_attr(Fields& f, const char* key, op::Pair& to) {
  Dims both;
  f.read(key, both);
  if (both.rank() > 0) to = both.rank() == 1 ? op::Pair(both[0]) : op::Pair(both[0], both[1]);
}
void read_attr(Fields&, const char*, std::optional<Device>&) {}  // all of a judgement is on one
void read_attr(Fields& f, const char* key, Reduction& to) {
  std::string name;
  f.read(key, name);
  if (name.empty()) return;
  const std::map<std::string, Reduction> all{{"mean", Reduction::mean},
                                             {"sum", Reduction::sum},
                                             {"none", Reduction::none},
                                             {"batchmean", Reduction::batchmean}};
  to = all.at(name);
}

template <class A>
Attrs read_attrs(Fields& f) {
  A a{};
  each_attr(a, [&](const char* key, auto& to) { read_attr(f, key, to); });
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
