#include "minim/tools/bench_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "minim/tools/terminal.h"

namespace minim::bench {

void Ceilings::add(Measured& ceiling) {
  const Body& work = ceiling.body;
  if (work.flops + work.bytes == 0) return;
  ceiling.seconds = ceiling.best;
  (work.flops > 0 ? flops : bytes)[ceiling.threads] =
      std::max(work.flops, work.bytes) / ceiling.best;
}

double Ceilings::share(const Measured& m) const {
  if (m.name.starts_with("ceilings/")) return 0;
  if (m.body.flops > 0) return m.body.flops / m.seconds / flops.at(m.threads);
  return m.body.bytes > 0 ? m.body.bytes / m.seconds / bytes.at(m.threads) : 0;
}

namespace {

struct Rate {
  double value;
  const char* unit;
};
Rate rate_of(const Measured& r) {
  if (r.body.tokens > 0) return {r.body.tokens / r.seconds, "tokens/s"};
  if (r.body.flops > 0) return {r.body.flops / r.seconds / 1e9, "GFLOP/s"};
  if (r.body.bytes > 0) return {r.body.bytes / r.seconds / 1e9, "GB/s"};
  return {r.seconds * 1e9, "ns"};
}

std::string in_digits(double x) { return fmt::format("{:.{}f}", x, x < 10 ? 2 : x < 100 ? 1 : 0); }

std::string with_share(const Measured& r, const Ceilings& ceilings) {
  const std::string rate = in_digits(rate_of(r).value);
  const double share = ceilings.share(r);
  return share > 0 ? fmt::format("{} ({:.0f} %)", rate, 100 * share) : rate;
}

std::string stem_of(const Measured& r) { return r.name.substr(0, r.name.rfind('/')); }
std::string column_of(const Measured& r) { return r.name.substr(r.name.rfind('/') + 1); }

}  // namespace

Rows rates(const std::vector<Measured>& results, const Ceilings& ceilings) {
  const auto by_dtype = [](const Measured& r) {
    return std::ranges::any_of(kDTypesMeasured,
                               [&](DType d) { return column_of(r) == name_of(d); });
  };
  if (!by_dtype(results.front())) {
    Rows list{{"case", "rate", "unit", "of the ceiling", "speed, first of its set = 1"}};
    for (const Measured& r : results)
      list.push_back(
          {r.name, in_digits(rate_of(r).value), rate_of(r).unit,
           ceilings.share(r) > 0 ? fmt::format("{:.0f} %", 100 * ceilings.share(r)) : "-",
           r.relative > 0 ? fmt::format("{:.2f}", r.relative) : "-"});
    return list;
  }
  Rows rows{{"case", "unit", "f32", "f16", "bf16"}};
  for (const Measured& r : results) {
    if (rows.back()[0] != stem_of(r)) rows.push_back({stem_of(r), rate_of(r).unit, "", "", ""});
    for (size_t d = 0; d < 3; ++d)
      if (column_of(r) == name_of(kDTypesMeasured[d])) rows.back()[2 + d] = with_share(r, ceilings);
  }
  return rows;
}

Rows bytes_by_kind(const std::vector<Measured>& results) {
  Rows rows{{"peak MB of a step"}};
  for (const Measured& r : results) {
    if (r.body.notes.empty()) continue;
    std::vector<std::string> row{r.name};
    for (const auto& [kind, bytes] : r.body.notes) {
      if (rows.size() == 1) rows[0].push_back(kind);
      row.push_back(fmt::format("{:.2f}", bytes / 1e6));
    }
    rows.push_back(row);
  }
  return rows;
}

Rows comparison(const std::vector<Measured>& results,
                const std::map<std::string, double>& earlier) {
  Rows rows{{"case", "ns before", "ns now", "speed, now / before"}};
  for (const Measured& r : results)
    if (const auto before = earlier.find(r.name); before != earlier.end())
      rows.push_back({r.name, fmt::format("{:.0f}", before->second * 1e9),
                      fmt::format("{:.0f}", r.seconds * 1e9),
                      fmt::format("{:.2f}", before->second / r.seconds)});
  return rows;
}

void print(const Rows& rows, bool markdown) {
  if (rows.size() < 2) return;
  if (markdown) {
    const auto line = [](const std::vector<std::string>& cells) {
      std::cout << fmt::format("| {} |\n", fmt::join(cells, " | "));
    };
    line(rows[0]);
    line(std::vector<std::string>(rows[0].size(), "---"));
    std::for_each(rows.begin() + 1, rows.end(), line);
  } else {
    Table table(rows[0]);
    for (size_t i = 1; i < rows.size(); ++i) table.add(rows[i]);
    std::cout << table.str();
  }
  std::cout << std::endl;
}

nlohmann::ordered_json record_of(const Measured& r, const Ceilings& ceilings) {
  nlohmann::ordered_json j = {{"name", r.name},           {"threads", r.threads},
                              {"seconds", r.seconds},     {"best_seconds", r.best},
                              {"rate", rate_of(r).value}, {"unit", rate_of(r).unit}};
  if (r.relative > 0) j["relative"] = r.relative;
  if (const double share = ceilings.share(r); share > 0) j["of_ceiling"] = share;
  for (const auto& [kind, bytes] : r.body.notes) j["peak_bytes"][kind] = bytes;
  return j;
}

}  // namespace minim::bench
