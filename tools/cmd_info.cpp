// minim info: what this machine has, and the path that each number format takes on it.
#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Version.hpp>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "minim/core/cores.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/denormals.h"
#include "minim/core/device.h"
#include "minim/core/dtype.h"
#include "minim/core/parallel.h"
#include "minim/tools/commands.h"
#include "minim/tools/terminal.h"

namespace minim {
namespace {

using nlohmann::ordered_json;

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // names itself
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

struct Options {
  bool json = false;
};

std::vector<Setting> settings_of(Options& o) { return {json_setting(o.json)}; }

/// The brand string of CPUID leaves 0x80000002 to 0x80000004.
std::string cpu_name() {
  unsigned words[12] = {};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* w = words + 4 * leaf;
    if (!__get_cpuid(0x80000002u + leaf, w, w + 1, w + 2, w + 3)) return "unknown";
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  const std::string name = text;
  const size_t first = name.find_first_not_of(' ');
  return first == name.npos ? "unknown"
                            : name.substr(first, name.find_last_not_of(' ') + 1 - first);
}

struct Feature {
  std::string_view name;
  bool present;
  std::string_view use;
};

std::vector<Feature> features() {
  __builtin_cpu_init();
  const auto has = [](int supported) { return supported != 0; };
  return {
      {"AVX2", has(__builtin_cpu_supports("avx2")), "v3: matrix products, 16-bit conversions"},
      {"FMA", has(__builtin_cpu_supports("fma")), "v3, v4: each multiply-add rounds once"},
      {"F16C", has(__builtin_cpu_supports("f16c")),
       "v3, v4: conversions from and to f16, the bits of the integer code of base"},
      {"AVX-512", has(__builtin_cpu_supports("x86-64-v4")),
       "v4: matrix products, 16-bit conversions"},
      {"AVX512_BF16", has(__builtin_cpu_supports("avx512bf16")),
       isa().pairs
           ? "v4-bf16: products of bf16 by bf16, two multiply-adds at once, with the bits of v4"
           : "none: v4-bf16 is taken where it is measured to be faster than v4"},
      {"AVX512_FP16", has(__builtin_cpu_supports("avx512fp16")),
       "none: its multiply-adds round to 16 bits, minim sums in fp32"},
      {"AMX-BF16", has(__builtin_cpu_supports("amx-bf16")), "none: minim has no kernel for it"},
  };
}

std::string present_among(const std::vector<Feature>& all,
                          std::span<const std::string_view> names) {
  std::vector<std::string_view> found;
  for (const Feature& f : all)
    if (f.present && std::ranges::count(names, f.name)) found.push_back(f.name);
  return fmt::format("{}", fmt::join(found, " and "));
}

std::string why_this_isa() {
  if (std::getenv("MINIM_ISA")) return "named by the environment variable MINIM_ISA";
  return "the best that this CPU has; MINIM_ISA=base, v3, v4 or v4-bf16 names another";
}

std::string vectors_of(std::string_view isa) {
  if (isa == "v4") return "512-bit AVX-512 with fused multiply-adds";
  if (isa == "v4-bf16") return "512-bit AVX-512 with fused multiply-adds, bf16 by pairs";
  if (isa == "v3") return "256-bit AVX2 with fused multiply-adds";
  return "128-bit SSE2";
}

std::string denormals_text() {
  return denormals_kept()
             ? "kept, on every thread: results below 2^-126 lose bits one by one, as IEEE 754 says"
             : "flushed to 0, on every thread: this program was linked to do so (as with "
               "-ffast-math)";
}

std::string cores_text(const Cores& c) {
  std::string text = fmt::format("{} usable of {}", c.usable(), c.machine);
  if (c.allowed < c.machine) text += fmt::format("; the affinity mask allows {}", c.allowed);
  if (c.quota) text += fmt::format("; the control group's quota is {:g}", *c.quota);
  return text;
}

struct Path {
  DType dtype;
  std::string path, why;
};

Path half_path(DType dtype, const std::string& unused) {
  return {
      dtype,
      "stored in 16 bits; widened to fp32 when a matrix product packs its operands, and as "
      "other ops load theirs; computed and summed in fp32; rounded once when stored",
      unused.empty()
          ? fmt::format("this CPU has no {} arithmetic; fp32 inside keeps the sums accurate",
                        name_of(dtype))
          : fmt::format("fp32 inside keeps the sums accurate; {} of this CPU not used", unused)};
}

std::vector<Path> paths(const std::vector<Feature>& cpu) {
  constexpr std::string_view kForF16[] = {"AVX512_FP16"};
  constexpr std::string_view kForBf16[] = {"AVX512_BF16", "AMX-BF16"};
  Path bf16 = half_path(DType::bf16, present_among(cpu, kForBf16));
  if (isa().pairs)
    bf16.path += "; products of bf16 by bf16 take two multiply-adds at once",
        bf16.why = "vdpbf16ps is faster here, and gives the bits of fp32 multiply-adds";
  const std::string vectors = vectors_of(isa().name);
  return {
      {DType::f64, "f64 throughout; matrix products on " + vectors,
       "one f64 operand makes a product f64, and autocast never narrows f64"},
      {DType::f32, "fp32 throughout, on " + vectors,
       "native; ops add and multiply in one order on every instruction set, products fuse where "
       "there is FMA"},
      half_path(DType::f16, present_among(cpu, kForF16)),
      bf16,
  };
}

/// "available", or why not.
std::string state_of(DeviceKind kind) {
  try {
    device_named(name_of(kind));
    return "available";
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<std::pair<std::string, std::string>> libraries() {
  return {{"compiler", kCompiler},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                              FMT_VERSION % 100)},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                        NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
          {"CLI11", CLI11_VERSION}};
}

void print_json() {
  const std::vector<Feature> cpu = features();
  ordered_json j = {{"version", kVersion}, {"cpu", cpu_name()}};
  for (const Feature& f : cpu)
    j["features"][std::string(f.name)] = {{"present", f.present}, {"use", f.use}};
  j["isa"] = {{"name", isa().name}, {"why", why_this_isa()}};
  j["denormals"] = {{"kept", denormals_kept()}, {"why", denormals_text()}};
  const Cores c = cores();
  j["cores"] = c.machine;
  j["usable_cores"] = {{"count", c.usable()}, {"affinity", c.allowed}};
  if (c.quota) j["usable_cores"]["quota"] = *c.quota;
  j["threads"] = threads();
  for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
    j["devices"][name_of(kind)] = {{"available", available(kind)}, {"state", state_of(kind)}};
  for (const Path& p : paths(cpu))
    j["dtypes"][name_of(p.dtype)] = {{"path", p.path}, {"why", p.why}};
  for (const auto& [name, version] : libraries()) j["libraries"][name] = version;
  std::cout << j.dump(2) << '\n';
}

void print_text() {
  const std::vector<Feature> cpu = features();
  const auto line = [](std::string_view label, std::string_view text) {
    std::cout << fmt::format("{:<15}{}\n", label, text);
  };
  line("minim", kVersion);
  line("cpu", cpu_name());
  line("isa", fmt::format("{}: {}; {}", isa().name, vectors_of(isa().name), why_this_isa()));
  line("threads", fmt::format("{}; their number never changes a result", threads()));
  line("cores", cores_text(cores()));
  line("denormals", denormals_text());
  for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
    line(fmt::format("device {}", name_of(kind)), state_of(kind));
  for (const auto& [name, version] : libraries()) line(name, version);
  Table table({"feature", "here", "used by"});
  for (const Feature& f : cpu)
    table.add({std::string(f.name), f.present ? "yes" : "no", std::string(f.use)});
  std::cout << '\n' << table.str() << '\n';
  for (const Path& p : paths(cpu))
    std::cout << fmt::format("{:<6}{}\n      why: {}\n", name_of(p.dtype), p.path, p.why);
}

}  // namespace

int cmd_info(Args args) {
  Options options;
  const std::vector<Setting> settings = settings_of(options);
  const auto flags = read_flags(settings, args, "info",
                                "Shows this machine and the paths that number formats take on it.");
  if (!flags) return 0;
  assign_all(settings, std::span(&*flags, 1));
  options.json ? print_json() : print_text();
  return 0;
}

}  // namespace minim
