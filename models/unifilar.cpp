#include "minim/models/unifilar.h"

#include <cmath>

#include "minim/core/error.h"
#include "minim/core/random.h"
#include "minim/models/dataset.h"

namespace minim::models {
namespace {

using States = std::vector<std::vector<Edge>>;

void check(const States& states, int64_t vocab) {
  for (size_t s = 0; s < states.size(); ++s) {
    double sum = 0;
    std::vector<bool> seen(size_t(vocab), false);
    for (const Edge& e : states[s]) {
      if (e.symbol < 0 || e.symbol >= vocab || seen[size_t(e.symbol)] || !(e.p > 0) || e.next < 0 ||
          size_t(e.next) >= states.size())
        fail("state ", s, " has a bad edge: symbol ", e.symbol, ", probability ", e.p, ", next ",
             e.next, "; symbols must be distinct and below ", vocab, ", probabilities positive");
      seen[size_t(e.symbol)] = true;
      sum += e.p;
    }
    if (!(std::abs(sum - 1) < 1e-12))
      fail("the probabilities of state ", s, " sum to ", sum, " instead of 1");
  }
}

std::vector<double> step(const States& states, const std::vector<double>& now) {
  std::vector<double> next(now.size());
  for (size_t s = 0; s < states.size(); ++s)
    for (const Edge& e : states[s]) next[size_t(e.next)] += now[s] * e.p;
  return next;
}

/// Stays put half of the time: that changes no stationary share and rules out a cycle.
std::vector<double> power_iteration(const States& states) {
  std::vector<double> now(states.size());
  now[0] = 1;
  for (int i = 0; i < 100000; ++i) {
    const std::vector<double> next = step(states, now);
    double change = 0;
    for (size_t s = 0; s < now.size(); ++s) {
      change += std::abs(next[s] - now[s]);
      now[s] = (now[s] + next[s]) / 2;
    }
    if (change < 1e-13) return now;
  }
  fail("the source with ", states.size(), " states has no stationary distribution to be found");
}

/// What a reader knows: the states that the symbols so far leave possible, with their
/// probabilities.
class Filter {
 public:
  explicit Filter(const States& states) : states_(states), gathered_(states.size()) {}

  void reset(const std::vector<double>& prior) {
    belief_.clear();
    for (size_t s = 0; s < prior.size(); ++s)
      if (prior[s] > 0) belief_.push_back({int32_t(s), prior[s]});
  }

  /// The symbol's probability given all before it; afterwards it is among them. 0: the source
  /// cannot emit it here.
  double read(int32_t symbol) {
    double total = 0;
    reached_.clear();
    for (const auto& [state, p] : belief_)
      for (const Edge& e : states_[size_t(state)])
        if (e.symbol == symbol) {
          double& sum = gathered_[size_t(e.next)];
          if (sum == 0) reached_.push_back(e.next);
          sum += p * e.p;
          total += p * e.p;
          break;
        }
    belief_.clear();
    for (int32_t s : reached_) {
      belief_.push_back({s, gathered_[size_t(s)] / total});
      gathered_[size_t(s)] = 0;
    }
    return total;
  }

 private:
  struct Weight {
    int32_t state;
    double p;
  };
  const States& states_;
  std::vector<Weight> belief_;
  std::vector<double> gathered_;  // per state, all 0 between calls
  std::vector<int32_t> reached_;
};

}  // namespace

UnifilarSource::UnifilarSource(States states, int64_t vocab)
    : states_(std::move(states)), vocab_(vocab) {
  check(states_, vocab);
  stationary_ = power_iteration(states_);
}

double UnifilarSource::entropy_rate() const {
  double rate = 0;
  for (size_t s = 0; s < states_.size(); ++s)
    for (const Edge& e : states_[s]) rate -= stationary_[s] * e.p * std::log(e.p);
  return rate;
}

std::vector<int32_t> UnifilarSource::sample(uint64_t seed, int64_t n) const {
  std::vector<int32_t> symbols;
  symbols.reserve(size_t(n));
  size_t state = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto random = Philox::block(seed, random_stream(RandomUse::toy), uint64_t(i));
    double left = uniform01(join(random[0], random[1]));
    const std::vector<Edge>& edges = states_[state];
    size_t e = 0;
    while (e + 1 < edges.size() && left >= edges[e].p) left -= edges[e++].p;
    symbols.push_back(edges[e].symbol);
    state = size_t(edges[e].next);
  }
  return symbols;
}

double UnifilarSource::nll(std::span<const int32_t> symbols, int64_t block) const {
  double sum = 0;
  Filter filter(states_);
  for (const Window& w : validation_windows(int64_t(symbols.size()), block)) {
    filter.reset(stationary_);
    for (int64_t i = w.start; i <= w.start + w.length; ++i) {
      const double p = filter.read(symbols[size_t(i)]);
      if (p == 0)
        fail("token ", symbols[size_t(i)], " at position ", i,
             " cannot follow what is before it: this text is not of the source whose likelihood "
             "was asked for");
      if (i > w.start) sum -= std::log(p);
    }
  }
  return sum / double(symbols.size() - 1);
}

}  // namespace minim::models
