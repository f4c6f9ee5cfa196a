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
/// is within it and at least half of it, is as good as one a single edit away ("batch-size" means
/// "batch"), and one that is a shorter whole part of it as one two edits away ("mse_loss" means
/// "mse"); among equals the one with the fewest edits wins.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace minim
