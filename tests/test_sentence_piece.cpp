#include <doctest/doctest.h>

#include <sentencepiece_trainer.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "minim/core/error.h"
#include "minim/models/dataset.h"
#include "minim/models/toy_language.h"
#include "minim/tests/messages.h"
#include "minim/tests/temp_dir.h"

using namespace minim;
using namespace minim::models;
using test::error_of;

namespace {

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::string& text) : text_(text) { Next(); }
  bool done() const override { return !text_; }
  void Next() override { std::getline(text_, line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::istringstream text_;
  std::string line_;
};

const std::string& toy_text() {
  static const std::string text = [] {
    const Dataset toy = toy_language(1, 20000);
    return toy.tokenizer.decode(toy.train.to_vector());
  }();
  return text;
}

/// The bytes of a model trained on the toy language.
std::string trained(const std::string& type, bool byte_fallback) {
  Lines lines(toy_text());
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", type},
       {"vocab_size", byte_fallback ? "360" : "120"},
       {"hard_vocab_limit", "false"},
       {"num_threads", "1"},
       {"minloglevel", "2"},
       {"byte_fallback", byte_fallback ? "true" : "false"}},
      &lines, &model);
  CAPTURE(status.ToString());
  REQUIRE(status.ok());
  return model;
}

}  // namespace

TEST_CASE("a SentencePiece model encodes the toy language in fewer tokens and gives it back") {
  const std::string text = "the cat that the dogs see sleeps.";
  for (const char* type : {"unigram", "bpe"}) {
    CAPTURE(type);
    const Tokenizer t = Tokenizer::sentencepiece(trained(type, false));
    CHECK(t.kind() == TokenizerKind::sentencepiece);
    CHECK(t.vocab() > 50);
    const std::vector<int32_t> tokens = t.encode(text);
    CHECK(tokens.size() < text.size() / 2);
    CHECK(std::ranges::max(tokens) < t.vocab());
    CHECK(t.decode(tokens) == text);
    CHECK(t.encode("").empty());
    std::string pieces;
    for (int32_t id : tokens) pieces += t.text_of(id);
    CHECK(pieces == " " + text);  // in the midst of a text a word begins with its space
    CHECK(Tokenizer::from_json(t.to_json()) == t);
  }
}

TEST_CASE("what a SentencePiece model does not know is unknown, or bytes") {
  const Tokenizer plain = Tokenizer::sentencepiece(trained("unigram", false));
  const std::vector<int32_t> tokens = plain.encode("cat é");
  CHECK(plain.unknown() == 0);
  CHECK(std::ranges::count(tokens, plain.unknown()) == 1);
  CHECK(plain.text_of(plain.unknown()) != "");
  const Tokenizer bytes = Tokenizer::sentencepiece(trained("bpe", true));
  CHECK_FALSE(bytes == plain);
  const std::vector<int32_t> exact = bytes.encode("cat é");
  CHECK(std::ranges::count(exact, bytes.unknown()) == 0);
  CHECK(bytes.decode(exact) == "cat é");
  CHECK(bytes.text_of(exact[exact.size() - 2]) + bytes.text_of(exact.back()) == "é");
  CHECK(bytes.text_of(1) == "");  // <s>
}

TEST_CASE("texts are read through a SentencePiece model's file, and what is none is refused") {
  const test::TempDir folder;
  const std::string model = trained("bpe", true), file = folder.write("toy.model", model);
  const DataFiles files{.train = {folder.write("a", toy_text())}, .tokenizer = file};
  const Dataset data = load_files(files);
  CHECK(data.tokenizer == Tokenizer::sentencepiece(model));
  TokenArray all = data.train;
  all.append(data.val);
  CHECK(all == data.tokenizer.encode(toy_text()));
  const auto refused = [&](const DataFiles& bad, const std::string& expected) {
    const std::string message = error_of([&] { load_files(bad); });
    CAPTURE(message);
    CHECK(message.find(expected) != message.npos);
  };
  refused({.train = files.train, .tokenizer = folder.write("no.model", "no model")}, "no.model'");
  refused({.train = files.train, .tokenizer = folder.at("none.model")}, "does not exist");
  refused({.train = {folder.write("bad", "a\xff")}, .tokenizer = file}, "offset 1");
  refused({.train = {folder.write("ids.bin", "\1")}, .tokenizer = file}, "is for texts");
}

TEST_CASE(
    "a SentencePiece model with another byte is refused or used, but never followed out of it") {
  const std::string good = trained("bpe", true);
  const size_t third = good.size() / 3;  // most of it is the normalizer's table
  int refused = 0;
  for (size_t at = 0; at < good.size(); at += at < third ? 997 : 4999) {
    std::string bad = good;
    for (size_t k = at; k < std::min(at + 4, bad.size()); ++k) bad[k] = char(0xff);
    CAPTURE(at);
    try {
      const Tokenizer t = Tokenizer::sentencepiece(bad);
      t.decode(t.encode("The \u00c5ngstr\u00f6m, the \ufb01sh and \u3300: \n"));
      for (int32_t id = 0; id < t.vocab(); ++id) t.text_of(id);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 10);
}
