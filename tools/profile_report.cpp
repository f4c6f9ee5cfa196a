#include "minim/tools/profile_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "minim/core/denormals.h"
#include "minim/tools/sizes.h"
#include "minim/tools/terminal.h"

namespace minim {
namespace {

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * double(part) / double(whole) : 0.0);
}
std::string ms(double ns) { return fmt::format("{:.3f}", ns / 1e6); }

std::string entries_text(const std::string& what, const Profile::Entries& e) {
  return fmt::format("{} of {} {}", e.denormal, e.seen, what);
}

}  // namespace

std::string profile_report(const Profile& profile, int64_t steps) {
  const int64_t whole = profile.ns();
  const auto by_phase = profile.ns_by_phase();
  Table phases({"phase", "ms a step", "share"});
  for (size_t k = 0; k < kPhases; ++k)
    phases.add({name_of(Phase(k)), ms(double(by_phase[k]) / double(std::max<int64_t>(1, steps))),
                percent(by_phase[k], whole)});
  Table ops({"op", "phase", "count", "total ms", "share", "denormals"});
  for (const Profile::Row& r : profile.rows())
    ops.add({r.name, name_of(r.phase), std::to_string(r.count), ms(double(r.ns)),
             percent(r.ns, whole), std::to_string(r.denormals)});
  return fmt::format("the time of {} steps: {} ms\n{}\n{}", steps, ms(double(whole)), phases.str(),
                     ops.str());
}

std::string denormal_report(const Profile& profile, const optim::Optimizer& optimizer) {
  std::vector<std::string> parts;
  for (size_t d = 0; d < kDTypes; ++d)
    if (const Profile::Entries& e = profile.entries()[d]; e.seen > 0)
      parts.push_back(entries_text(
          fmt::format("{} results{}", name_of(DType(d)),
                      DType(d) == DType::f16 ? " (normal numbers in fp32, as fast as others)" : ""),
          e));
  Profile::Entries state;
  for (const auto& [name, t] : optimizer.state()) {
    if (!is_floating(t.dtype())) continue;
    state.seen += t.numel();
    state.denormal += count_denormals(t.on_host().data(), t.dtype(), t.numel());
  }
  parts.push_back(entries_text("numbers of the optimizer's state", state));
  return fmt::format("denormals ({}): {}", denormals_kept() ? "kept" : "flushed to 0",
                     fmt::join(parts, ", "));
}

void write_trace(const Profile& profile, std::ostream& out) {
  const auto us = [](int64_t ns) { return double(ns) / 1e3; };
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const char* separator = "\n";
  for (const Profile::Span& s : profile.spans()) {
    const nlohmann::ordered_json event{
        {"name", s.name},    {"cat", name_of(s.phase)},    {"ph", "X"},
        {"ts", us(s.begin)}, {"dur", us(s.end - s.begin)}, {"pid", 1},
        {"tid", 1}};
    out << separator << event.dump();
    separator = ",\n";
  }
  out << "\n]}\n";
}

std::string memory_report(const MemoryStats& stats) {
  std::vector<std::pair<size_t, MemoryKind>> kinds;
  for (size_t k = 0; k < kMemoryKinds; ++k)
    if (stats.by_kind[k].peak > 0) kinds.emplace_back(stats.by_kind[k].peak, MemoryKind(k));
  std::ranges::stable_sort(kinds, std::greater(), [](const auto& k) { return k.first; });
  std::vector<std::string> parts;
  for (const auto& [bytes, kind] : kinds)
    parts.push_back(fmt::format("{} {}", name_of(kind), bytes_text(double(bytes))));
  return fmt::format("peak memory {}: {}", bytes_text(double(stats.total.peak)),
                     fmt::join(parts, ", "));
}

}  // namespace minim
