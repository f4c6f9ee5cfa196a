// models/toy_language.h -- the bundled toy language: small English sentences out of a probabilistic
// grammar whose exact likelihood is known, so that a run can show its loss above the least possible
// one. What there is to learn, easy to hard: spelling, words of very unequal frequency, brackets
// and quotes that close, repeats ("owls will be owls"), counting
// ("two knocks: knock knock"), and verbs that agree with a subject up to three clauses back ("the
// cat that the dogs see sleeps").
#pragma once
#include <cstdint>
#include <span>

#include "minim/models/dataset.h"
#include "minim/models/unifilar.h"

namespace minim::models {

/// The grammar, compiled: symbol i is token i of the dataset. Takes some milliseconds.
UnifilarSource toy_source();

/// The text that `seed` gives, `n_tokens` characters long, split as every dataset. Throws Error for
/// n_tokens < 20, where validation would have nothing to predict.
Dataset toy_language(uint64_t seed, int64_t n_tokens, double val_fraction = 0.1);

/// The least possible mean loss, nats per token, on these validation tokens read in windows of
/// `block`; see UnifilarSource::nll. Throws Error for tokens that are not of the toy language.
double floor_nll(std::span<const int32_t> val, int64_t block);

}  // namespace minim::models
