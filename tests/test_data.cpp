#include <doctest/doctest.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "minim/core/error.h"
#include "minim/models/dataset.h"
#include "minim/models/shuffle.h"
#include "minim/models/token_file.h"
#include "minim/models/tokenizer.h"
#include "minim/tests/messages.h"
#include "minim/tests/temp_dir.h"

using namespace minim;
using namespace minim::models;
using namespace std::string_literals;

namespace {

using Tokens = std::vector<int32_t>;

using test::check_says, test::error_of, test::TempDir;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(std::vector<int32_t> first) {
  first.resize(256);
  return bytes_of(first);
}

}  // namespace

TEST_CASE("the byte tokenizer gives any bytes back") {
  std::string all;
  for (int b = 0; b < 256; ++b) all += char(b);
  const Tokenizer t = Tokenizer::bytes();
  CHECK(t.vocab() == 256);
  CHECK(t.encode(all)[255] == 255);
  CHECK(t.decode(t.encode(all)) == all);
  CHECK(t.encode("").empty());
}

TEST_CASE("the character tokenizer numbers code points in their order") {
  const Tokenizer t = Tokenizer::characters("zé€a😀\0a"s);
  CHECK(t.vocab() == 6);
  CHECK(t.encode("\0az"s) == Tokens{0, 1, 2});
  CHECK(t.encode("é€😀") == Tokens{3, 4, 5});
  CHECK(t.decode(Tokens{5, 4, 3, 2, 1, 0}) == "😀€éza\0"s);
}

TEST_CASE("every length of UTF-8 survives at its ends") {
  const std::string ends = "\x01\x7f\u0080\u07ff\u0800\uD7FF\ue000\uffff\U00010000\U0010ffff";
  const Tokenizer t = Tokenizer::characters(ends);
  CHECK(t.vocab() == 10);
  CHECK(t.decode(t.encode(ends)) == ends);
}

TEST_CASE("invalid UTF-8 is told with its byte offset and the way out") {
  const std::vector<std::string> bad = {"\x80",
                                        "\xff",
                                        "\xc3",
                                        "\xc3(",
                                        "\xe2\x82",
                                        "\xc0\xaf",
                                        "\xe0\x80\xaf",
                                        "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xf0\x80\x80\x80",
                                        "\xf8\x88\x80\x80\x80"};
  for (const std::string& bytes : bad)
    check_says(error_of([&] { Tokenizer::characters("é" + bytes); }),
               {"invalid UTF-8 at byte offset 2", "--tokenizer byte"});
}

TEST_CASE("a character outside the vocabulary is named, with its place") {
  const Tokenizer t = Tokenizer::characters("abé");
  check_says(error_of([&] { t.encode("aéü"); }), {"U+00FC 'ü'", "byte offset 3", "3 characters"});
  check_says(error_of([&] { t.encode("a\n"); }), {"U+000A at"});
  CHECK(error_of([] { Tokenizer::characters(""); }) != "");
}

TEST_CASE("a token id outside the vocabulary does not decode") {
  check_says(error_of([] { Tokenizer::bytes().decode(Tokens{1, 256}); }), {"256", "position 1"});
  check_says(error_of([] { Tokenizer::characters("ab").decode(Tokens{-1}); }), {"-1", "0 to 1"});
}

TEST_CASE("without a text, tokens are written and read as numbers") {
  const Tokenizer t = Tokenizer::none(50257);
  CHECK(t.decode(Tokens{1, 50256, 0}) == "1 50256 0");
  CHECK(t.encode(" 1\n50256  0 ") == Tokens{1, 50256, 0});
  CHECK(t.encode(" \n").empty());
  for (const std::string& bad : {"7 50257"s, "7 -1"s, "7 x"s, "7 3x"s, "7 99999999999"s})
    check_says(error_of([&] { t.encode(bad); }), {"byte offset 2", "0 to 50256"});
  CHECK(error_of([] { Tokenizer::none(0); }) != "");
}

TEST_CASE("a tokenizer comes back from its JSON") {
  for (const Tokenizer& t :
       {Tokenizer::bytes(), Tokenizer::characters("a\"\\\n\0é😀"s), Tokenizer::none(9)})
    CHECK(Tokenizer::from_json(t.to_json()) == t);
  CHECK_FALSE(Tokenizer::bytes() == Tokenizer::none(256));
}

TEST_CASE("foreign JSON is not a tokenizer") {
  const std::string good = R"({"format": "minim.tokenizer.v1", "kind": "character", )";
  for (const std::string& bad :
       {""s, "{"s, "[]"s, "{}"s, "null"s, R"({"format": "other", "kind": "byte", "vocab": 256})"s,
        R"({"format": "minim.tokenizer.v1", "kind": "bpe", "vocab": 256})"s,
        R"({"format": "minim.tokenizer.v1", "kind": "byte", "vocab": 255})"s,
        R"({"format": "minim.tokenizer.v1", "kind": "byte", "vocab": "256"})"s,
        good + R"("vocab": 3, "characters": "ab"})", good + R"("vocab": 0, "characters": ""})",
        good + R"("vocab": 2})", good + R"("vocab": 2, "characters": 7})"})
    check_says(error_of([&] { Tokenizer::from_json(bad); }), {"not a tokenizer of minim"});
}

TEST_CASE("D4: the writer refuses id 70000, which uint16 does not hold, and writes nothing") {
  const TempDir dir;
  const std::string path = dir.at("t.bin");
  check_says(error_of([&] {
               write_token_file(path, Tokens{5, 70000}, 100000);
             }),
             {"70000", "position 1", "65535", "uint32"});
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("D4: the header says the type of the ids") {
  const TempDir dir;
  const Tokens tokens = {0, 65535, 7};
  write_token_file(dir.at("t.bin"), tokens, 65536);
  CHECK(std::filesystem::file_size(dir.at("t.bin")) == 1024 + 3 * 2);
  const TokenFile two = read_token_file(dir.at("t.bin"));
  CHECK(two.tokens == tokens);
  CHECK(two.vocab == 65536);
  const std::string wide = dir.write(
      "llama.bin", header({20240801, 7, 2}) + bytes_of(std::vector<uint32_t>{70000, 128255}));
  const TokenFile four = read_token_file(wide);
  CHECK(four.tokens == Tokens{70000, 128255});
  CHECK(four.vocab == 128256);
}

TEST_CASE("the writer refuses what the vocabulary does not have, and no tokens") {
  const TempDir dir;
  const std::string path = dir.at("t.bin");
  check_says(error_of([&] { write_token_file(path, Tokens{1, 10}, 10); }), {"10", "0 to 9"});
  check_says(error_of([&] { write_token_file(path, Tokens{-1}, 10); }), {"-1"});
  check_says(error_of([&] { write_token_file(path, Tokens{}, 10); }), {"no tokens"});
  check_says(error_of([&] { write_token_file(path, Tokens{1}, 0); }), {"vocabulary of 0"});
  check_says(error_of([&] { write_token_file(dir.at("no/t.bin"), Tokens{1}, 10); }),
             {"cannot be written"});
}

TEST_CASE("D3: a token id outside the vocabulary is an error at load with id, offset, vocabulary") {
  const TempDir dir;
  const std::string ids = bytes_of(std::vector<uint16_t>{1, 2, 100, 3});
  const std::string raw = dir.write("raw.bin", ids);
  check_says(error_of([&] { read_token_file(raw, 100); }),
             {"token id 100", "file offset 4", "token 2", "100 ids"});
  CHECK(read_token_file(raw, 101).tokens == Tokens{1, 2, 100, 3});
  const std::string gpt2 = dir.write("gpt2.bin", header({20240520, 1, 4}) + ids);
  check_says(error_of([&] { load_files({.train = {gpt2}, .vocab = 100}); }),
             {"token id 100", "file offset 1028"});
  CHECK(read_token_file(gpt2).vocab == 50257);
  const std::string wide = dir.write(
      "wide.bin", header({20240801, 7, 1}) + bytes_of(std::vector<uint32_t>{0xffffffffu}));
  check_says(error_of([&] { read_token_file(wide); }), {"token id 4294967295", "offset 1024"});
}

TEST_CASE("nanoGPT's token files need the vocabulary") {
  const TempDir dir;
  const std::string raw = dir.write("raw.bin", bytes_of(std::vector<uint16_t>{3, 1, 2}));
  check_says(error_of([&] { read_token_file(raw); }), {"20240520", "--vocab N"});
  const TokenFile file = read_token_file(raw, 50257);
  CHECK(file.tokens == Tokens{3, 1, 2});
  CHECK(file.vocab == 50257);
  check_says(error_of([&] { read_token_file(raw, 0); }), {"vocabulary of 0"});
}

TEST_CASE("missing, empty, odd-sized and truncated token files are told apart") {
  const TempDir dir;
  const auto error = [&](const std::string& bytes) {
    return error_of([&] { read_token_file(dir.write("t.bin", bytes), 100); });
  };
  const std::string h = header({20240520, 1, 2});
  check_says(error_of([&] { read_token_file(dir.at("none.bin"), 9); }), {"none.bin", "not exist"});
  check_says(error_of([&] { read_token_file(dir.path.string(), 9); }), {"is a directory"});
  check_says(error(""), {"is empty"});
  check_says(error("abc"), {"odd size, 3 bytes"});
  check_says(error(h.substr(0, 500)), {"truncated", "500 of 1024"});
  check_says(error(h + "\1\0\2"s), {"says 2 tokens", "3 bytes follow"});
  check_says(error(h + "\1\0\2\0\3\0"s), {"says 2 tokens", "6 bytes follow"});
  check_says(error(header({20240520, 1, -1})), {"says -1 tokens"});
  check_says(error(header({20240520, 1, 0})), {"holds no tokens"});
  check_says(error(header({20240520, 2, 1}) + "\1\0"s), {"version 2", "expected version 1"});
  check_says(error(header({20240801, 1, 1}) + "\1\0\0\0"s), {"version 1", "expected version 7"});
}

TEST_CASE("the last tenth of a text is for validation") {
  const TempDir dir;
  const Dataset d = load_files({.train = {dir.write("t.txt", "abcdefghijk")}, .tokenizer = "byte"});
  CHECK(d.train.size() == 9);  // floor(9.9)
  CHECK(d.val == Tokens{'j', 'k'});
  CHECK(d.vocab == 256);
  CHECK(d.source == dir.at("t.txt"));
  const auto sizes = [](size_t n) { return split(Tokens(n), Tokenizer::bytes(), "").train.size(); };
  for (size_t n = 1; n < 3000; ++n) REQUIRE(sizes(n) == n * 9 / 10);
  CHECK(sizes(1) == 0);
  CHECK(sizes(10) == 9);
  CHECK(sizes(1115394) == 1003854);
}

TEST_CASE("validation tokens keep their place and their character ids") {
  const TempDir dir;
  const Dataset d = load_files({.train = {dir.write("t.txt", "ééééééééab")}});
  CHECK(d.vocab == 3);
  CHECK(d.tokenizer.decode(d.train.to_vector()) + d.tokenizer.decode(d.val.to_vector()) ==
        "ééééééééab");
  CHECK(d.val == Tokens{1});
}

TEST_CASE("texts that cannot be loaded say why") {
  const TempDir dir;
  const auto load = [&](const std::string& path, const std::string& tokenizer) {
    return error_of([&] { load_files({.train = {path}, .tokenizer = tokenizer}); });
  };
  check_says(load(dir.at("none.txt"), "byte"), {"none.txt", "does not exist"});
  check_says(load(dir.write("e", ""), "byte"), {"is empty"});
  check_says(load(dir.write("b", "ab\xff"), "char"),
             {dir.at("b"), "byte offset 2", "--tokenizer byte"});
  CHECK(load(dir.at("b"), "byte") == "");
}

TEST_CASE("a token file becomes a dataset of numbers") {
  const TempDir dir;
  write_token_file(dir.at("t.bin"), Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 11);
  const Dataset d = load_files({.train = {dir.at("t.bin")}});
  CHECK(d.train.size() == 9);
  CHECK(d.val == Tokens{10});
  CHECK(d.vocab == 11);
  CHECK(d.tokenizer == Tokenizer::none(11));
}

TEST_CASE(
    "a token file that changes while it is read is an error, one that is replaced is another") {
  const TempDir dir;
  const std::string path = dir.at("t.bin");
  const Tokens all(5000, 3), other(4000, 2);
  const auto loaded = [&] {
    write_token_file(path, all, 10);
    return load_files({.train = {path}, .val_fraction = 0.1}).train;
  };
  TokenArray tokens = loaded();
  write_token_file(path, other, 10);
  CHECK(tokens.to_vector() == Tokens(4500, 3));
  tokens = loaded();
  std::filesystem::resize_file(path, 2000);
  check_says(error_of([&] { tokens.to_vector(); }), {path, "was changed", "11024", "2000"});
  tokens = loaded();
  const auto touch = [&](int seconds) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(seconds));
  };
  touch(1);
  CHECK(tokens.to_vector() == Tokens(4500, 3));  // the same bytes
  std::ofstream(path, std::ios::in | std::ios::out).seekp(3000) << "x";
  touch(2);
  check_says(error_of([&] { tokens.to_vector(); }), {path, "was changed"});
}

TEST_CASE("a token file reads like the same tokens in memory, piece by piece") {
  const TempDir dir;
  Tokens all(5000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(i * i % 999);
  write_token_file(dir.at("a.bin"), std::span(all).first(3000), 1000);
  dir.write("b.bin", header({20240801, 7, 2000}) +
                         bytes_of(std::vector<uint32_t>(all.begin() + 3000, all.end())));
  TokenArray files = read_token_file(dir.at("a.bin")).tokens;
  files.append(read_token_file(dir.at("b.bin"), 1000).tokens);
  const TokenArray memory = all;
  CHECK(files == memory);
  for (const auto& [start, n] : {std::pair{0, 5000}, {2990, 20}, {2999, 2}, {3000, 1}, {5000, 0}}) {
    CAPTURE(start);
    const auto from = all.begin() + start;
    CHECK(files.slice(size_t(start), size_t(n)) == Tokens(from, from + n));
    std::vector<int64_t> ids(size_t(n), -1);
    files.read(size_t(start), ids);
    CHECK(Tokens(ids.begin(), ids.end()) == Tokens(from, from + n));
  }
  Tokens two(2);
  files.slice(2990, 20).read(9, two);  // a slice across the pieces
  CHECK(two == Tokens{all[2999], all[3000]});
  Tokens three(3);
  check_says(error_of([&] { files.read(4998, three); }), {"4998 to 5001 of 5000"});
  check_says(error_of([&] { files.slice(5001, 0); }), {"of 5000"});
}

TEST_CASE("several files read as one and validate on their end or on a file of its own") {
  const TempDir dir;
  const std::string a = dir.write("a", "abcabcabca"), b = dir.write("b", "zé"),
                    v = dir.write("v", "xé");
  const auto text = [](const Dataset& d, const TokenArray& tokens) {
    return d.tokenizer.decode(tokens.to_vector());
  };
  const Dataset whole = load_files({.train = {a, b}, .val_fraction = 0.5});
  CHECK(text(whole, whole.train) == "abcabc");
  CHECK(text(whole, whole.val) == "abcazé");
  CHECK(whole.source == a + ", " + b);
  const Dataset apart = load_files({.train = {a, b}, .val = v});
  CHECK(text(apart, apart.train) == "abcabcabcazé");
  CHECK(text(apart, apart.val) == "xé");
  CHECK(apart.vocab == 6);
  CHECK(load_files({.train = {b}}, apart.tokenizer).tokenizer == apart.tokenizer);
  check_says(error_of([&] { load_files({.train = {v}}, whole.tokenizer); }), {v, "U+0078"});
  dir.write("bad", "a\xff");
  check_says(error_of([&] { load_files({.train = {a, dir.at("bad")}}); }), {"bad'", "offset 1"});
}

TEST_CASE("token files of several vocabularies and texts among them are refused") {
  const TempDir dir;
  write_token_file(dir.at("a.bin"), Tokens{1, 2, 3, 4}, 10);
  write_token_file(dir.at("b.bin"), Tokens{11}, 12);
  const DataFiles both{.train = {dir.at("a.bin"), dir.at("b.bin")}};
  check_says(error_of([&] { load_files(both); }), {"of 10 tokens", "b.bin' one of 12", "--vocab"});
  DataFiles sized = both;
  sized.vocab = 12;
  CHECK(load_files(sized).val == Tokens{11});
  const std::string text = dir.write("t.txt", "abc");
  check_says(error_of([&] {
               load_files({.train = {dir.at("a.bin"), text}});
             }),
             {"a.bin' and '", "t.txt'", "cannot be mixed"});
  check_says(error_of([&] { load_files({.train = {text}, .val = dir.at("a.bin")}); }), {"mixed"});
}
