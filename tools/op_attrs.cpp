#include "minim/tools/op_attrs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "minim/ops/functional.h"

namespace minim {
namespace {

std::pair<const char*, std::string> told(bool v) { return {"bool", v ? "true" : "false"}; }
std::pair<const char*, std::string> told(double v) { return {"double", fmt::format("{}", v)}; }
std::pair<const char*, std::string> told(Index v) { return {"Index", fmt::format("{}", v)}; }
std::pair<const char*, std::string> told(const op::Pair& v) {
  return {"Pair", fmt::format("{}", v.h)};  // defaults are the same both ways
}
std::pair<const char*, std::string> told(const Dims&) { return {"Dims", "{}"}; }
std::pair<const char*, std::string> told(DType v) { return {"DType", name_of(v)}; }
std::pair<const char*, std::string> told(const std::optional<Index>&) {
  return {"optional<Index>", "none"};
}
std::pair<const char*, std::string> told(const std::optional<DType>&) {
  return {"optional<DType>", "none"};
}
std::pair<const char*, std::string> told(const std::optional<Device>&) {
  return {"optional<Device>", "none"};
}
std::pair<const char*, std::string> told(Reduction v) {
  return {"Reduction", std::array{"mean", "sum", "none", "batchmean"}[size_t(v)]};
}
std::pair<const char*, std::string> told(AttentionKernel v) {
  return {"AttentionKernel", std::array{"fused", "reference"}[size_t(v)]};
}

/// The attributes of a struct by where they are in it; those that are known leave no room for
/// another.
template <class A>
std::vector<Attribute> read_all(const char* op) {
  if constexpr (std::is_empty_v<A>) return {};
  A all{};
  struct At {
    size_t size, align;
    Attribute attribute;
  };
  std::map<size_t, At> by_place;
  each_attr(all, [&]<class T>(const char* name, T& member) {
    const auto [type, value] = told(member);
    const auto place = reinterpret_cast<std::byte*>(&member) - reinterpret_cast<std::byte*>(&all);
    by_place.emplace(place, At{sizeof(T), alignof(T), {name, type, value}});
  });
  auto aligned = [](size_t n, size_t to) { return (n + to - 1) / to * to; };
  size_t end = 0;
  bool complete = true;
  std::vector<Attribute> attributes;
  for (const auto& [place, at] : by_place) {
    complete &= place == aligned(end, at.align);
    end = place + at.size;
    attributes.push_back(at.attribute);
  }
  if (!complete || aligned(end, alignof(A)) != sizeof(A))
    fail("an attribute of ", op, " has no line in each_attr(), tools/op_attrs.h");
  return attributes;
}

}  // namespace

std::vector<Attribute> attributes_of(const OpRow& row) {
  static const std::map<const OpRow*, std::vector<Attribute> (*)(const char*)> kRead{
#define OP(name, F, ...) {&Op::name, read_all<attrs_t<op::F>>},
#include "minim/ops/ops.def"
#undef OP
  };
  return kRead.at(&row)(row.name);
}

}  // namespace minim
