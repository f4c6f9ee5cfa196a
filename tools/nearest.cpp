#include "minim/tools/nearest.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace minim {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() +
                               1);  // distances from the prefix of a to every prefix of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

namespace {

constexpr std::size_t kUnlike = std::numeric_limits<std::size_t>::max();

std::size_t unlikeness(std::string_view word, std::string_view candidate) {
  const auto [shorter, longer] =
      std::minmax(word, candidate, [](auto x, auto y) { return x.size() < y.size(); });
  const std::size_t distance = edit_distance(word, candidate);
  if (shorter.size() >= 3 && longer.find(shorter) != longer.npos)
    return std::min<std::size_t>(distance, 1);
  return 2 * distance <= std::max<std::size_t>(longer.size(), 3) ? distance : kUnlike;
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t least = kUnlike;
  for (const std::string_view candidate : candidates) {
    const std::size_t unlike = unlikeness(word, candidate);
    if (unlike < least) {
      least = unlike;
      best = candidate;
    }
  }
  return best;
}

}  // namespace minim
