// tools/nearest.h -- the known name that a misspelt one most likely meant.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace minim {

/// Levenshtein distance: the fewest insertions, deletions and substitutions of one character that
/// turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate most like `word`, or "" when none is alike. A candidate that contains `word`, or
/// lies within it, is almost as good as an exact one ("batch-size" means "batch").
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace minim
