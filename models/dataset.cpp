#include "minim/models/dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "minim/core/error.h"
#include "minim/core/random.h"
#include "minim/models/read_file.h"
#include "minim/models/shuffle.h"
#include "minim/models/sync_file.h"
#include "minim/models/token_file.h"

namespace minim::models {
namespace {

void check_block(int64_t block) {
  if (block < 1) fail("block is ", block, ": a sequence has at least 1 token");
}

/// What is wrong in `act` is wrong with this file.
template <class Act>
auto in_file(const std::string& path, const Act& act) try {
  return act();
} catch (const Error& error) {
  fail("data file '", path, "': ", error.what());
}

bool is_token_file(const std::string& path) { return path.ends_with(".bin"); }

void check_one_kind(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (is_token_file(path) != is_token_file(paths[0]))
      fail("'", paths[0], "' and '", path, "': texts and token files (.bin) cannot be mixed: give ",
           "files of one kind");
}

Tokenizer load_tokenizer(const std::string& path) try {
  return Tokenizer::sentencepiece(read_file(path, "tokenizer"));
} catch (const Error& error) {
  fail("--tokenizer '", path, "': ", error.what());
}

Tokenizer tokenizer_of(const std::vector<std::string>& paths, const std::vector<std::string>& texts,
                       const std::string& name) {
  if (name == "byte") return Tokenizer::bytes();
  if (name.ends_with(".model")) return load_tokenizer(name);
  std::string alphabet;
  for (size_t i = 0; i < texts.size(); ++i)
    alphabet += in_file(paths[i], [&] { return Tokenizer::characters(texts[i]).alphabet(); });
  return Tokenizer::characters(alphabet);
}

/// Without the mark that some programs put in front, U+FEFF: it is no character of the text.
std::string text_in(const std::string& path) {
  std::string text = read_file(path, "data");
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

LoadedFile file_of(const std::string& path, const std::string& text, const Tokenizer& tokenizer) {
  LoadedFile file{path, tokenizer.encode(text), "text", "utf-8", text.size()};
  for (size_t begin = 0; begin < text.size(); ++file.lines) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    file.longest_line = std::max(file.longest_line, end - begin);
    begin = end + 1;
  }
  return file;
}

LoadedFiles load_texts(const std::vector<std::string>& paths, const std::string& tokenizer,
                       const std::optional<Tokenizer>& model) {
  std::vector<std::string> texts;
  for (const std::string& path : paths)
    if (texts.push_back(text_in(path)); texts.back().empty())
      fail("data file '", path, "' is empty");
  LoadedFiles all{{}, model ? *model : tokenizer_of(paths, texts, tokenizer)};
  for (size_t i = 0; i < texts.size(); ++i)
    in_file(paths[i], [&] { all.files.push_back(file_of(paths[i], texts[i], all.tokenizer)); });
  return all;
}

std::string beside(const std::string& path) { return path + ".tokenizer.json"; }

std::optional<Tokenizer> tokenizer_beside(const std::string& path) {
  if (!std::filesystem::exists(beside(path))) return std::nullopt;
  return in_file(beside(path),
                 [&] { return Tokenizer::from_json(read_file(beside(path), "tokenizer")); });
}

LoadedFiles load_token_files(const std::vector<std::string>& paths, std::optional<int64_t> vocab,
                             const std::optional<Tokenizer>& model) {
  const std::optional<Tokenizer> own = tokenizer_beside(paths[0]);
  if (own && model && model->kind() != TokenizerKind::none && *own != *model)
    fail("'", paths[0], "' was made with another tokenizer than the model's");
  if (model) vocab = model->vocab();
  if (own && vocab.value_or(own->vocab()) != own->vocab())
    fail("the tokenizer of '", paths[0], "' has ", own->vocab(), " tokens, not ", *vocab);
  if (own) vocab = own->vocab();
  LoadedFiles all{{}, Tokenizer::none(1)};
  int64_t first = 0;
  for (const std::string& path : paths) {
    const TokenFile file = read_token_file(path, vocab);
    if (all.files.empty()) first = file.vocab;
    if (file.vocab != first)
      fail("'", paths[0], "' has a vocabulary of ", first, " tokens, '", path, "' one of ",
           file.vocab, ": give the size for all: --vocab N");
    if (tokenizer_beside(path) != own)
      fail("'", paths[0], "' and '", path, "' were made with different tokenizers: ",
           "make both with one `minim data`, or give their texts");
    all.files.push_back(
        {path, file.tokens, file.format, file.width == 2 ? "uint16" : "uint32", file.bytes});
  }
  all.tokenizer = model ? *model : own.value_or(Tokenizer::none(first));
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace

Dataset split(const TokenArray& tokens, Tokenizer tokenizer, std::string source,
              double val_fraction) {
  const size_t n_val = size_t(std::ceil(double(tokens.size()) * val_fraction));
  const size_t n_train = tokens.size() - n_val;
  const int64_t vocab = tokenizer.vocab();
  return {tokens.slice(0, n_train), tokens.slice(n_train, n_val), std::move(tokenizer), vocab,
          std::move(source)};
}

LoadedFiles load_each(const DataFiles& files, const std::optional<Tokenizer>& model) {
  std::vector<std::string> paths = files.train;
  if (!files.val.empty()) paths.push_back(files.val);
  check_one_kind(paths);
  if (!is_token_file(paths[0])) return load_texts(paths, files.tokenizer, model);
  if (files.tokenizer != "auto")
    fail("--tokenizer ", files.tokenizer, " is for texts, but '", paths[0],
         "' is a token file: leave it out");
  return load_token_files(paths, files.vocab, model);
}

Dataset load_files(const DataFiles& files, const std::optional<Tokenizer>& model) {
  const LoadedFiles all = load_each(files, model);
  TokenArray train;
  for (size_t i = 0; i < files.train.size(); ++i) train.append(all.files[i].tokens);
  const std::string source = joined(files.train);
  if (files.val.empty()) return split(train, all.tokenizer, source, files.val_fraction);
  return {train, all.files.back().tokens, all.tokenizer, all.tokenizer.vocab(), source};
}

void save_tokens(const std::string& path, const TokenArray& tokens, const Tokenizer& tokenizer) {
  const DirectoryLock alone(parent_of(path));  // two files that belong together
  StagedFile ids(path, token_file_bytes(tokens.to_vector(), tokenizer.vocab()));
  const std::string names = tokenizer.to_json();
  StagedFile named(beside(path), names);
  std::error_code none;  // a kill between the two must not leave these tokens with other names
  if (std::filesystem::exists(beside(path)) && read_file(beside(path), "tokenizer") != names)
    std::filesystem::remove(beside(path), none);
  ids.commit();
  named.commit();
}

void check_length(int64_t n_tokens, int64_t block, const std::string& what) {
  check_block(block);
  if (n_tokens > block) return;
  fail(what, " has ", n_tokens, " tokens; block ", block, " needs >= ", block + 1,
       " tokens (each input and the token after it): give a longer text or a smaller --block");
}

std::vector<int64_t> batch_starts(uint64_t seed, int64_t step, int64_t micro, int64_t batch,
                                  int64_t n_tokens, int64_t block) {
  check_length(n_tokens, block);
  const uint64_t stream = random_stream(RandomUse::data, uint64_t(step));
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < batch; ++i) {
    const auto random = Philox::block(seed, stream, uint64_t(micro) << 32 | uint64_t(i));
    starts.push_back(int64_t(below(uint64_t(n_tokens - block), join(random[0], random[1]))));
  }
  return starts;
}

std::vector<int64_t> epoch_starts(uint64_t seed, int64_t first, int64_t batch, int64_t n_tokens,
                                  int64_t block) {
  check_length(n_tokens, block);
  const int64_t blocks = (n_tokens - 1) / block;  // the last one's targets end with the tokens
  std::vector<int64_t> starts;
  for (int64_t i = first; i < first + batch; ++i)
    starts.push_back(block * int64_t(shuffled(seed, uint64_t(i / blocks), uint64_t(i % blocks),
                                              uint64_t(blocks))));
  return starts;
}

std::vector<Window> validation_windows(int64_t n_tokens, int64_t block) {
  check_block(block);
  if (n_tokens < 2) fail("validation has ", n_tokens, " tokens; it needs >= 2: give a longer text");
  std::vector<Window> windows;
  for (int64_t start = 0; start < n_tokens - 1; start += block)
    windows.push_back({start, std::min(block, n_tokens - 1 - start)});
  return windows;
}

}  // namespace minim::models
