// tools/judge/attrs.h -- calls of minim that are written in JSON: an op's name, its operands and
// its attributes by the names they have in C++.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "minim/core/tensor.h"

namespace minim::judge {

using Json = nlohmann::json;

/// The attributes of one call, each read by its name.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  /// Leaves `to` as it is where the key is not there.
  template <class T>
  void read(const char* key, T& to) {
    const auto at = object_.find(key);
    if (at == object_.end()) return;
    ++used_;
    to = value(*at, std::type_identity<T>{});
  }
  template <class T>
  T get(const char* key, T otherwise) {
    read(key, otherwise);
    return otherwise;
  }
  /// @throws Error where the object has a key that nobody read.
  void finish() const;

 private:
  template <class T>
  static T value(const Json& json, std::type_identity<T>) {
    return json.get<T>();
  }
  template <class T>
  static std::optional<T> value(const Json& json, std::type_identity<std::optional<T>>) {
    return value(json, std::type_identity<T>{});
  }
  static double value(const Json& json,
                      std::type_identity<double>);  ///< also "inf", "-inf" and "nan"
  static Dims value(const Json& json, std::type_identity<Dims>);
  static DType value(const Json& json, std::type_identity<DType>);
  const Json& object_;
  size_t used_ = 0;
};

/// A number of the language: it never widens a tensor.
Tensor number(const Json& json);

/// Calls a row of the table, or a function that has none (methods.cpp). Undefined tensors stand for
/// operands that are not given.
/// @throws Error as minim does, and for names that it has not.
std::vector<Tensor> call_named(const std::string& name, const std::vector<Tensor>& operands,
                               const Json& attrs);

/// The same for functions without a row; nothing where there is none of that name.
std::optional<std::vector<Tensor>> call_function(const std::string& name,
                                                 const std::vector<Tensor>& operands,
                                                 Fields& attrs);

}  // namespace minim::judge
