// tools/bench_tables.h -- what minim bench measured, as people and programs read it.
#pragma once
#include <map>
#include <nlohmann/json.hpp>

#include "minim/tools/bench.h"

namespace minim::bench {

/// The best rates of the ceilings, by number of threads.
struct Ceilings {
  std::map<int, double> flops, bytes;  ///< per second

  void add(Measured& ceiling);  ///< what is only a time is none, and stays a median
  /// 0 for what is counted neither as operations nor as bytes, and for the ceilings.
  double share(const Measured& m) const;
};

using Rows = std::vector<std::vector<std::string>>;  ///< the header first

/// A line for each name but its last part and a column for each dtype; of cases with other last
/// parts a list.
Rows rates(const std::vector<Measured>& results, const Ceilings& ceilings);
/// Peak megabytes of a step, by what they are for.
Rows bytes_by_kind(const std::vector<Measured>& results);
/// With the seconds that each took earlier, by name.
Rows comparison(const std::vector<Measured>& results, const std::map<std::string, double>& earlier);
/// Nothing where there is only a header.
void print(const Rows& rows, bool markdown);

nlohmann::ordered_json record_of(const Measured& m, const Ceilings& ceilings);

}  // namespace minim::bench
