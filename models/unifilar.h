// models/unifilar.h -- a source of symbols with hidden states, in which a state and the symbol it
// emits determine the next state (a unifilar hidden Markov source). That makes the entropy rate a
// closed sum over the states, and the exact likelihood of a text a forward (Bayes) filter (Rabiner,
// "A tutorial on hidden Markov models", 1989).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minim::models {

struct Edge {
  int32_t symbol, next;
  double p;
};

class UnifilarSource {
 public:
  /// @param states per state its edges; state 0 is the start. Throws Error unless each state's
  /// symbols are distinct and in 0 .. vocab-1, and its probabilities are positive and sum to 1.
  UnifilarSource(std::vector<std::vector<Edge>> states, int64_t vocab);

  int64_t vocab() const { return vocab_; }
  std::span<const std::vector<Edge>> states() const { return states_; }

  /// Share of the time that an endless text spends in each state (power iteration until a step
  /// moves less than 1e-13).
  const std::vector<double>& stationary() const { return stationary_; }

  /// Nats per symbol for one who has read an endless text: no prediction can do better.
  double entropy_rate() const;

  /// `n` symbols from the start state on, a function of the seed.
  std::vector<int32_t> sample(uint64_t seed, int64_t n) const;

  /// Mean negative log-likelihood, nats per predicted symbol, of one who knows the source but reads
  /// each of validation_windows(symbols.size(), block) afresh: before a window the states have
  /// their stationary probabilities, and each symbol read conditions them. Throws Error for a text
  /// that the source cannot produce.
  double nll(std::span<const int32_t> symbols, int64_t block) const;

 private:
  std::vector<std::vector<Edge>> states_;
  int64_t vocab_;
  std::vector<double> stationary_;
};

/// A piece of text that a context may go on with, and the context after it.
struct Production {
  std::string text;
  double weight;  // relative to the others of its context
  int32_t next;
};

/// The source that writes, from context `start` on, one production after another. Each context
/// becomes a trie of its texts. Where one text begins another ("cat", "cats"), its end is also the
/// beginning of the context after it.
/// @param alphabet symbol i is alphabet[i]. Throws Error when a text is empty or leaves the
/// alphabet, or when after some beginning the same symbol could belong to two contexts, so that it
/// would not determine the state.
UnifilarSource compile(const std::function<std::vector<Production>(int32_t)>& grammar,
                       int32_t start, std::string_view alphabet);

}  // namespace minim::models
