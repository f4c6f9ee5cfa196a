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

/// Edits, of which a shared stretch is worth all but one; then all edits. Smaller is more alike.
using Unlikeness = std::pair<std::size_t, std::size_t>;
constexpr Unlikeness kUnlike{std::numeric_limits<std::size_t>::max(), 0};

/// How many edits a candidate within `word` counts for: one, or two where it is less than half of
/// it, for which it must be a whole part ("mse" of "mse_loss").
std::size_t cost_within(std::string_view word, std::string_view candidate) {
  const std::size_t at = word.find(candidate), end = at + candidate.size();
  if (at == word.npos) return kUnlike.first;
  if (candidate.size() >= 3 && 2 * candidate.size() >= word.size()) return 1;
  auto parts = [&](std::size_t i) { return word[i] == '_' || word[i] == '-'; };
  const bool whole = (at == 0 || parts(at - 1)) && (end == word.size() || parts(end));
  return whole && !candidate.empty() ? 2 : kUnlike.first;
}

Unlikeness unlikeness(std::string_view word, std::string_view candidate) {
  const std::size_t edits = edit_distance(word, candidate);
  const bool holds = word.size() >= 3 && candidate.find(word) != candidate.npos;
  const std::size_t shared = holds ? 1 : cost_within(word, candidate);
  if (shared != kUnlike.first) return {std::min(edits, shared), edits};
  const std::size_t longer = std::max(word.size(), candidate.size());
  if (2 * edits <= std::max<std::size_t>(longer, 3)) return {edits, edits};
  return kUnlike;
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  Unlikeness least = kUnlike;
  for (const std::string_view candidate : candidates)
    if (const Unlikeness unlike = unlikeness(word, candidate); unlike < least) {
      least = unlike;
      best = candidate;
    }
  return best;
}

}  // namespace minim
