#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "minim/core/error.h"
#include "minim/models/toy_language.h"
#include "minim/tests/messages.h"

using namespace minim;
using namespace minim::models;
using test::error_of;

namespace {

using Tokens = std::vector<int32_t>;

const UnifilarSource& toy() {
  static const UnifilarSource source = toy_source();
  return source;
}

/// Emits 0, or 1s in pairs (the "even process").
UnifilarSource even_process() { return {{{{0, 0, 0.5}, {1, 1, 0.5}}, {{1, 0, 1.0}}}, 2}; }

/// log P(symbols), by following each state's one path: no filter.
double log_likelihood(const UnifilarSource& source, std::span<const int32_t> symbols) {
  double total = 0;
  for (size_t first = 0; first < source.states().size(); ++first) {
    double p = source.stationary()[first];
    size_t state = first;
    for (int32_t symbol : symbols) {
      const auto& edges = source.states()[state];
      const auto e =
          std::find_if(edges.begin(), edges.end(), [&](auto& x) { return x.symbol == symbol; });
      p = e == edges.end() ? 0 : p * e->p;
      if (p == 0) break;
      state = size_t(e->next);
    }
    total += p;
  }
  return std::log(total);
}

/// Share of each symbol in an endless text.
std::vector<double> symbol_shares(const UnifilarSource& source) {
  std::vector<double> share(size_t(source.vocab()), 0);
  for (size_t s = 0; s < source.states().size(); ++s)
    for (const Edge& e : source.states()[s])
      share[size_t(e.symbol)] += source.stationary()[s] * e.p;
  return share;
}

double unigram_nll(std::span<const int32_t> symbols) {
  const std::vector<double> share = symbol_shares(toy());
  double sum = 0;
  for (int32_t s : symbols.subspan(1)) sum -= std::log(share[size_t(s)]);
  return sum / double(symbols.size() - 1);
}

/// H(next symbol | symbol) in a text, from its counts.
double bigram_entropy(std::span<const int32_t> text) {
  std::map<std::pair<int32_t, int32_t>, double> pairs;
  std::map<int32_t, double> singles;
  for (size_t i = 0; i + 1 < text.size(); ++i) ++pairs[{text[i], text[i + 1]}], ++singles[text[i]];
  double sum = 0;
  for (const auto& [pair, n] : pairs) sum -= n * std::log(n / singles[pair.first]);
  return sum / double(text.size() - 1);
}

uint64_t fnv1a(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int32_t t : tokens) hash = (hash ^ uint64_t(t)) * 0x100000001b3;
  return hash;
}

bool contains(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("the even process has its known stationary distribution, entropy rate and likelihood") {
  const UnifilarSource source = even_process();
  CHECK(source.stationary()[0] == doctest::Approx(2.0 / 3).epsilon(1e-12));
  CHECK(source.stationary()[1] == doctest::Approx(1.0 / 3).epsilon(1e-12));
  CHECK(source.entropy_rate() == doctest::Approx(2.0 / 3 * std::log(2.0)).epsilon(1e-12));
  // After a 1 the two states are equally likely: P(1|1) = 1/2 * 1/2 + 1/2 * 1, P(0|1) = 1/4.
  CHECK(source.nll(Tokens{1, 1}, 1) == doctest::Approx(-std::log(0.75)).epsilon(1e-12));
  CHECK(source.nll(Tokens{1, 0}, 1) == doctest::Approx(-std::log(0.25)).epsilon(1e-12));
  // After 0 1 the state is known.
  CHECK(source.nll(Tokens{0, 1, 1}, 2) == doctest::Approx(std::log(2.0) / 2).epsilon(1e-12));
  // A new window forgets it.
  CHECK(source.nll(Tokens{0, 1, 1}, 1) ==
        doctest::Approx((std::log(2.0) - std::log(0.75)) / 2).epsilon(1e-12));
}

TEST_CASE("a source with a probability lost, or a symbol twice in a state, is refused") {
  CHECK(contains(error_of([] { UnifilarSource({{{0, 0, 0.5}, {1, 0, 0.4}}}, 2); }), "sum to 0.9"));
  CHECK(contains(error_of([] { UnifilarSource({{{0, 0, 0.5}, {0, 0, 0.5}}}, 2); }), "symbol 0"));
  CHECK(contains(error_of([] { UnifilarSource({{{2, 0, 1.0}}}, 2); }), "symbol 2"));
}

TEST_CASE("a word that begins another ends where the context after it begins") {
  // "a" then "." or "ab" then ".": P(a) = 1, then b or the dot.
  const auto grammar = [](int32_t context) -> std::vector<Production> {
    if (context == 1) return {{".", 1, 0}};
    return {{"a", 3, 1}, {"ab", 1, 1}};
  };
  const UnifilarSource source = compile(grammar, 0, ".ab");
  CHECK(source.states().size() == 3);
  CHECK(source.nll(Tokens{1, 2}, 1) == doctest::Approx(-std::log(0.25)));
  CHECK(source.nll(Tokens{1, 0}, 1) == doctest::Approx(-std::log(0.75)));
  CHECK(source.nll(Tokens{2, 0, 1}, 2) == doctest::Approx(0));
}

TEST_CASE("a grammar that a symbol would leave ambiguous, or without words, is refused") {
  const auto compiled = [](std::vector<Production> first, std::vector<Production> second) {
    return error_of([&] { compile([&](int32_t c) { return c ? second : first; }, 0, ".ab"); });
  };
  CHECK(contains(compiled({{"a", 1, 1}, {"ab", 1, 1}}, {{"b", 1, 0}}), "symbol 2"));
  CHECK(contains(compiled({{"a", 1, 1}, {"a", 1, 0}}, {{"b", 1, 0}}), "'a' twice"));
  CHECK(contains(compiled({{"", 1, 1}}, {{"b", 1, 0}}), "without text"));
  CHECK(contains(compiled({{"x", 1, 1}}, {{"b", 1, 0}}), "'x' is not in the alphabet"));
  CHECK(contains(compiled({{"a", 1, 1}}, {}), "no productions"));
}

TEST_CASE("in each state of the toy language the probabilities sum to 1") {
  CHECK(toy().states().size() < 6000);
  for (const auto& edges : toy().states()) {
    double sum = 0;
    for (const Edge& e : edges) sum += e.p;
    CHECK(std::abs(sum - 1) < 1e-13);
  }
}

TEST_CASE("the toy language's stationary distribution stays as it is under a step") {
  const std::vector<double>& pi = toy().stationary();
  std::vector<double> next(pi.size());
  double sum = 0;
  for (size_t s = 0; s < pi.size(); ++s) {
    sum += pi[s];
    for (const Edge& e : toy().states()[s]) next[size_t(e.next)] += pi[s] * e.p;
  }
  CHECK(std::abs(sum - 1) < 1e-12);
  for (size_t s = 0; s < pi.size(); ++s) CHECK(std::abs(next[s] - pi[s]) < 1e-13);
  CHECK(*std::ranges::min_element(pi) > 0);
}

TEST_CASE("a sample has the symbols as often as the stationary distribution says") {
  const Dataset data = toy_language(5, 200000);
  std::vector<double> count(size_t(data.vocab), 0);
  for (int32_t t : data.train.to_vector()) ++count[size_t(t)];
  const std::vector<double> share = symbol_shares(toy());
  for (size_t i = 0; i < share.size(); ++i) {
    CAPTURE(i);
    const double n = double(data.train.size());
    CHECK(share[i] > 0);  // each symbol occurs
    CHECK(std::abs(count[i] / n - share[i]) < 5 * std::sqrt(share[i] / n));
  }
}

TEST_CASE("some symbols of the toy language are rare") {
  const std::vector<double> share = symbol_shares(toy());
  CHECK(std::ranges::count_if(share, [](double p) { return p < 0.004; }) >= 6);
  CHECK(std::ranges::max(share) > 0.1);
}

TEST_CASE("the toy text is a function of its seed") {
  const Dataset a = toy_language(1337, 2000), b = toy_language(1337, 5000);
  CHECK(fnv1a(a.train.slice(0, 1000).to_vector()) == 0xb52db6b34cab7750);
  CHECK(a.train == b.train.slice(0, a.train.size()));
  CHECK(a.train != toy_language(1338, 2000).train);
}

TEST_CASE("the toy dataset is split, has the alphabet's tokenizer and reads as text") {
  const Dataset data = toy_language(1, 1000);
  CHECK(data.train.size() == 900);
  CHECK(data.val.size() == 100);
  CHECK(data.vocab == toy().vocab());
  CHECK(data.tokenizer.vocab() == data.vocab);
  CHECK(data.source == "toy language, seed 1");
  const std::string text = data.tokenizer.decode(data.train.to_vector());
  CHECK(text.find("the ") != text.npos);
  CHECK(data.tokenizer.encode(text) == data.train.to_vector());
}

TEST_CASE("quotes and brackets of the toy text close in the right order") {
  const Dataset data = toy_language(3, 100000);
  std::string open;
  bool sound = true;
  size_t deepest = 0;
  for (char c : data.tokenizer.decode(data.train.to_vector())) {
    const bool closes = c == ')' || (c == '"' && open.find('"') != open.npos);
    if (closes) {
      sound = sound && !open.empty() && open.back() == (c == ')' ? '(' : '"');
      if (!open.empty()) open.pop_back();
    } else if (c == '(' || c == '"') {
      open += c;
    }
    deepest = std::max(deepest, open.size());
  }
  CHECK(sound);
  CHECK(deepest == 2);
}

TEST_CASE("verbs of the toy text agree with their subjects across clauses") {
  const auto possible = [](const std::string& text) {
    const Dataset data = toy_language(1, 100);
    return error_of([&] { floor_nll(data.tokenizer.encode(text), 200); }).empty();
  };
  CHECK(possible("! the cat that the dogs see sleeps."));
  CHECK_FALSE(possible("! the cat that the dogs see sleep."));
  CHECK_FALSE(possible("! the cat that the dogs sees sleeps."));
  CHECK(possible("! the cats that the dog that sees the kings likes sleep."));
  CHECK_FALSE(possible("! the cats that the dog that sees the kings likes sleeps."));
  CHECK(possible("! does the mouse run?"));
  CHECK_FALSE(possible("! does the mice run?"));
  CHECK(possible("! three hops: hop hop hop."));
  CHECK_FALSE(possible("! three hops: hop hop."));
  CHECK(possible("! owls will be owls."));
  CHECK_FALSE(possible("! owls will be cats."));
}

TEST_CASE("the floor is the exact conditional likelihood of each window") {
  const Dataset data = toy_language(7, 3000);
  const std::vector<int32_t> val = data.val.to_vector();
  for (int64_t block : {1, 7, 64, 1000}) {
    CAPTURE(block);
    double sum = 0;
    for (const Window& w : validation_windows(int64_t(data.val.size()), block)) {
      const auto window = std::span(val).subspan(size_t(w.start), size_t(w.length) + 1);
      sum += log_likelihood(toy(), window.first(1)) - log_likelihood(toy(), window);
    }
    CHECK(floor_nll(data.val.to_vector(), block) ==
          doctest::Approx(sum / double(data.val.size() - 1)).epsilon(1e-9));
  }
}

TEST_CASE("the floor of a long sample comes down to the entropy rate as the context grows") {
  const Dataset data = toy_language(1337, 500000);
  const double rate = toy().entropy_rate();
  double before = 1e9;
  for (int64_t block : {2, 8, 32, 128}) {
    const double floor = floor_nll(data.val.to_vector(), block);
    CHECK(floor < before);
    CHECK(floor > rate);
    before = floor;
  }
  CHECK(before - rate < 0.04);
  CHECK(std::abs(floor_nll(data.train.to_vector(), 500000) - rate) <
        0.005);  // one window: context to the start
}

TEST_CASE("the floor of block 1 is the bigram entropy") {
  const Dataset data = toy_language(9, 200000);
  CHECK(std::abs(floor_nll(data.val.to_vector(), 1) - bigram_entropy(data.train.to_vector())) <
        0.03);
}

TEST_CASE("wrong likelihoods are worse than the floor") {
  const Dataset data = toy_language(11, 100000);
  CHECK(unigram_nll(data.val.to_vector()) > floor_nll(data.val.to_vector(), 1) + 0.5);
  CHECK(floor_nll(data.val.to_vector(), 1) > floor_nll(data.val.to_vector(), 64) + 0.5);
}

TEST_CASE("bad requests to the toy language are told so") {
  CHECK(contains(error_of([] { toy_language(1, 19); }), "at least 20"));
  CHECK_NOTHROW(toy_language(1, 20));
  CHECK(contains(error_of([] { floor_nll(Tokens{20, 20, 20, 20}, 4); }), "position 1"));
  CHECK(contains(error_of([] { floor_nll(Tokens{20}, 4); }), ">= 2"));
  CHECK(contains(error_of([] { floor_nll(Tokens{20, 20}, 0); }), "block is 0"));
}
