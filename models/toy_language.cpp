#include "minim/models/toy_language.h"

#include <array>
#include <string>
#include <string_view>

#include "minim/core/error.h"

namespace minim::models {
namespace {

constexpr std::string_view kAlphabet = "\n !\"(),.:?abcdefghijklmnopqrstuvwxyz";  // by code point

struct Word {
  std::string_view singular, plural;  // of verbs: the form after a singular or plural subject
  std::string form(int number) const { return std::string(number == 0 ? singular : plural); }
};

// In each list a word is 1 / rank as frequent as the first.
constexpr std::array<Word, 16> kNouns = {{{"cat", "cats"},
                                          {"dog", "dogs"},
                                          {"bird", "birds"},
                                          {"girl", "girls"},
                                          {"king", "kings"},
                                          {"owl", "owls"},
                                          {"mouse", "mice"},
                                          {"snail", "snails"},
                                          {"robot", "robots"},
                                          {"fox", "foxes"},
                                          {"wizard", "wizards"},
                                          {"queen", "queens"},
                                          {"pony", "ponies"},
                                          {"jackdaw", "jackdaws"},
                                          {"zebra", "zebras"},
                                          {"vulture", "vultures"}}};
constexpr std::array<Word, 8> kIntransitive = {{{"sleeps", "sleep"},
                                                {"runs", "run"},
                                                {"sings", "sing"},
                                                {"hides", "hide"},
                                                {"laughs", "laugh"},
                                                {"jumps", "jump"},
                                                {"dozes", "doze"},
                                                {"vanishes", "vanish"}}};
constexpr std::array<Word, 8> kTransitive = {{{"sees", "see"},
                                              {"likes", "like"},
                                              {"helps", "help"},
                                              {"fears", "fear"},
                                              {"follows", "follow"},
                                              {"knows", "know"},
                                              {"judges", "judge"},
                                              {"puzzles", "puzzle"}}};
constexpr std::array<std::string_view, 6> kAdjectives = {"small", "old",   "happy",
                                                         "quick", "brave", "exotic"};
constexpr std::array<std::string_view, 3> kNoises = {"knock", "beep", "hop"};
struct Count {
  std::string_view word;
  int n;
};
constexpr std::array<Count, 4> kCounts = {{{"two", 2}, {"three", 3}, {"four", 4}, {"five", 5}}};
constexpr std::array<double, 2> kNumberShare = {0.6, 0.4};  // singular, plural

enum class Place {
  sentence,   // at its beginning
  subject,    // a noun, which joins the subjects that wait for their verbs
  relative,   // after the "that" behind a subject
  tail,       // behind a subject
  predicate,  // the last subject's verb
  object,     // a noun that needs no verb
  question,   // the subject of "does", or "do"
  ask,        // the verb of a question
  answer,     // the end of a question
  end,        // behind a whole sentence
  closed,     // behind the bracket behind a whole sentence
};
enum class Inside { text, quote, bracket, quoted_bracket };

/// What the rest of the text depends on.
struct Context {
  Place place = Place::sentence;
  Inside inside = Inside::text;
  int depth = 0;    // subjects that wait for their verbs, at most 3
  int numbers = 0;  // bit i: subject i is plural; of a question: its subject is

  int last() const { return numbers >> (depth - 1) & 1; }
  Context at(Place p) const { return {p, inside, depth, numbers}; }
  Context within(Inside i) const { return {Place::subject, i, 0, 0}; }
  Context push(int number) const {
    return {Place::tail, inside, depth + 1, numbers | number << depth};
  }
  Context pop(Place p) const { return {p, inside, depth - 1, numbers & ~(1 << (depth - 1))}; }

  int32_t pack() const { return ((int(place) * 4 + int(inside)) * 4 + depth) * 8 + numbers; }
  static Context unpack(int32_t id) {
    return {Place(id / 128), Inside(id / 32 % 4), id / 8 % 4, id % 8};
  }
};

using Productions = std::vector<Production>;

void add(Productions& out, double weight, std::string text, const Context& next) {
  out.push_back({std::move(text), weight, next.pack()});
}

/// Calls put(word, weight) with weights of 1 / rank that sum to `total`.
void zipf(const auto& words, double total, const auto& put) {
  double sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += 1.0 / double(i + 1);
  for (size_t i = 0; i < words.size(); ++i) put(words[i], total / (double(i + 1) * sum));
}

void add_verbs(Productions& out, const auto& verbs, double total, int number, const Context& next) {
  zipf(verbs, total,
       [&](const Word& verb, double w) { add(out, w, " " + verb.form(number), next); });
}

std::string repeated(std::string_view word, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += " " + std::string(word);
  return text;
}

Productions sentence(const Context& c) {
  Productions out;
  add(out, 0.72, "the ", c.at(Place::subject));
  add(out, 0.06, "does the ", {Place::question, c.inside, 0, 0});
  add(out, 0.04, "do the ", {Place::question, c.inside, 0, 1});
  zipf(kNouns, 0.10, [&](const Word& noun, double w) {
    const std::string plural = noun.form(1);
    add(out, w, plural + " will be " + plural, c.at(Place::end));
  });
  zipf(kCounts, 0.08, [&](const Count& count, double total) {
    zipf(kNoises, total, [&](std::string_view noise, double w) {
      const std::string counted = std::string(count.word) + " " + std::string(noise) + "s:";
      add(out, w, counted + repeated(noise, count.n), c.at(Place::end));
    });
  });
  return out;
}

/// An adjective and a noun again, or a noun of the number that `next(number)` is for.
Productions nouns(const Context& c, const auto& next) {
  Productions out;
  zipf(kAdjectives, 0.2,
       [&](std::string_view adjective, double w) { add(out, w, std::string(adjective) + " ", c); });
  for (int number : {0, 1})
    zipf(kNouns, 0.8 * kNumberShare[size_t(number)],
         [&](const Word& noun, double w) { add(out, w, noun.form(number), next(number)); });
  return out;
}

Productions subject(const Context& c) {
  return nouns(c, [&](int number) { return c.push(number); });
}

Productions object(const Context& c) {
  const Context next = c.at(c.depth == 0 ? Place::end : Place::predicate);
  return nouns(c, [&](int) { return next; });
}

Productions relative(const Context& c) {
  Productions out;
  add(out, 0.45, " the ", c.at(Place::subject));
  zipf(kTransitive, 0.55, [&](const Word& verb, double w) {
    add(out, w, " " + verb.form(c.last()) + " the ", c.at(Place::object));
  });
  return out;
}

Productions predicate(const Context& c) {
  Productions out;
  const int number = c.last();
  if (c.depth > 1) {  // of a clause whose object is the subject before
    add_verbs(out, kTransitive, 1, number, c.pop(Place::predicate));
    return out;
  }
  add_verbs(out, kIntransitive, 0.5, number, c.pop(Place::end));
  zipf(kTransitive, 0.4, [&](const Word& verb, double w) {
    add(out, w, " " + verb.form(number) + " the ", c.pop(Place::object));
  });
  if (c.inside == Inside::text)
    add(out, 0.1, number == 0 ? " says, \"the " : " say, \"the ", c.within(Inside::quote));
  return out;
}

Productions tail(const Context& c) {
  Productions out = predicate(c);
  if (c.inside == Inside::text && c.depth < 3)
    add(out, c.depth == 1 ? 0.25 : 0.15, " that", c.at(Place::relative));
  return out;
}

Productions question(const Context& c) {
  Productions out;
  zipf(kNouns, 1, [&](const Word& noun, double w) {
    add(out, w, noun.form(c.numbers), {Place::ask, c.inside, 0, 0});
  });
  return out;
}

Productions ask(const Context& c) {
  Productions out;
  add_verbs(out, kIntransitive, 1, 1, c.at(Place::answer));
  return out;
}

Productions answer(const Context&) {
  Productions out;
  add(out, 0.8, "? ", {});
  add(out, 0.2, "?\n", {});
  return out;
}

Productions closed(const Context& c) {
  Productions out;
  const std::string quote = c.inside == Inside::quote ? "\"" : "";
  add(out, 0.72, "." + quote + " ", {});
  add(out, 0.20, "." + quote + "\n", {});
  add(out, 0.08, "!" + quote + " ", {});
  return out;
}

Productions end(const Context& c) {
  Productions out;
  if (c.inside == Inside::bracket || c.inside == Inside::quoted_bracket) {
    const Inside outer = c.inside == Inside::bracket ? Inside::text : Inside::quote;
    add(out, 1, ")", {Place::closed, outer, 0, 0});
    return out;
  }
  out = closed(c);
  const bool quote = c.inside == Inside::quote;
  add(out, 0.08, " (the ", c.within(quote ? Inside::quoted_bracket : Inside::bracket));
  add(out, 0.12, ", and the ", c.within(c.inside));
  return out;
}

constexpr std::array kGrammar = {sentence, subject, relative, tail, predicate, object,
                                 question, ask,     answer,   end,  closed};  // by Place

Productions productions(int32_t id) {
  const Context c = Context::unpack(id);
  return kGrammar[size_t(c.place)](c);
}

}  // namespace

UnifilarSource toy_source() { return compile(productions, Context{}.pack(), kAlphabet); }

Dataset toy_language(uint64_t seed, int64_t n_tokens, double val_fraction) {
  if (n_tokens < 20)
    fail("a toy text of ", n_tokens,
         " tokens: --toy-tokens must be at least 20, so that the last "
         "tenth holds a token and the one after it");
  return split(toy_source().sample(seed, n_tokens), Tokenizer::characters(kAlphabet),
               "toy language, seed " + std::to_string(seed), val_fraction);
}

double floor_nll(std::span<const int32_t> val, int64_t block) {
  return toy_source().nll(val, block);
}

}  // namespace minim::models
