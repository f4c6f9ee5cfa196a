// minim data: what is in texts and token files; texts to a token file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "minim/core/error.h"
#include "minim/models/dataset.h"
#include "minim/tools/commands.h"

namespace minim {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> files;
  std::string tokenizer = "auto", to;
  std::int64_t vocab = 0;
  bool json = false;
};

std::vector<Setting> settings_of(Options& o) {
  return {
      {.name = "files",
       .section = "",
       .value = &o.files,
       .help = "UTF-8 texts or token files (.bin)",
       .positional = true},
      {.name = "to",
       .section = "",
       .value = &o.to,
       .help = "write their tokens to this .bin, and the tokenizer beside it",
       .also = {"out", "output", "convert"}},
      {.name = "tokenizer",
       .section = "",
       .value = &o.tokenizer,
       .help = "what a token of a text is: auto is char; a .model is SentencePiece's",
       .choices = {"auto", "char", "byte"},
       .suffix = ".model"},
      {.name = "vocab",
       .section = "",
       .value = &o.vocab,
       .help = "number of tokens, for a token file that does not say",
       .range = Range{.low = 0, .high = 1e15},
       .also = {"vocab-size"}},
      json_setting(o.json),
  };
}

/// How the tokens lie in their vocabulary. They pass by in pieces: there may be many.
ordered_json statistics(const std::vector<models::LoadedFile>& files,
                        const models::Tokenizer& tokenizer) {
  std::vector<bool> seen(size_t(tokenizer.vocab()));
  size_t tokens = 0, unknown = 0;
  std::vector<int32_t> ids;
  for (const models::LoadedFile& file : files)
    for (size_t at = 0; at < file.tokens.size(); at += ids.size()) {
      ids.resize(std::min(size_t{1} << 16, file.tokens.size() - at));
      file.tokens.read(at, ids);
      tokens += ids.size();
      unknown += size_t(std::ranges::count(ids, tokenizer.unknown()));
      for (const int32_t id : ids) seen[size_t(id)] = true;
    }
  const auto first = std::ranges::find(seen, true);
  const auto last = std::find(seen.rbegin(), seen.rend(), true);
  return {{"tokens", tokens},
          {"vocabulary", tokenizer.vocab()},
          {"used", std::ranges::count(seen, true)},
          {"smallest", first - seen.begin()},
          {"largest", seen.rend() - last - 1},
          {"unknown_share", double(unknown) / double(tokens)},
          {"tokenizer", tokenizer.kind_name()}};
}

ordered_json facts_of(const models::LoadedFile& file) {
  ordered_json facts = {{"file", file.path},
                        {"kind", file.format},
                        {"dtype", file.dtype},
                        {"bytes", file.bytes},
                        {"tokens", file.tokens.size()}};
  if (file.format == "text")
    facts.update({{"lines", file.lines}, {"longest_line", file.longest_line}});
  return facts;
}

void print(const ordered_json& j) {
  for (const auto& [name, value] : j.items())
    std::cout << fmt::format("{:<14}{}\n", name,
                             value.is_string() ? value.get<std::string>() : value.dump());
}

void check_target(const Options& o) {
  if (!o.to.ends_with(".bin"))
    fail("--to ", o.to, ": a token file's name ends in .bin, by which minim train knows it");
  std::vector<std::string> read = o.files;
  read.push_back(o.tokenizer);
  std::error_code not_there;
  for (const char* suffix : {"", ".tmp", ".tokenizer.json", ".tokenizer.json.tmp"})
    for (const std::string& file : read)
      if (std::filesystem::equivalent(file, o.to + suffix, not_there))
        fail("--to ", o.to, " writes '", o.to, suffix, "', which is one of the files that are read",
             ": give another name");
}

}  // namespace

int cmd_data(Args args) {
  Options options;
  const std::vector<Setting> settings = settings_of(options);
  const auto flags = read_flags(settings, args, "data",
                                "Shows what is in texts and token files; turns texts into one.");
  if (!flags) return 0;
  const Sources sources = assign_all(settings, std::span(&*flags, 1));
  if (options.files.empty()) fail("no file is given: minim data FILE ... [--to OUT.bin]");
  refuse_unused(sources,
                {{"vocab", options.files.front().ends_with(".bin"), "a token file (FILE.bin)"}});
  const models::LoadedFiles loaded = models::load_each(
      {.train = options.files,
       .tokenizer = options.tokenizer,
       .vocab = options.vocab > 0 ? std::optional<int64_t>(options.vocab) : std::nullopt});
  if (!options.to.empty()) {
    check_target(options);
    models::TokenArray all;
    for (const models::LoadedFile& file : loaded.files) all.append(file.tokens);
    models::save_tokens(options.to, all, loaded.tokenizer);
  }
  ordered_json j = statistics(loaded.files, loaded.tokenizer);
  std::vector<ordered_json> files;
  for (const models::LoadedFile& file : loaded.files) files.push_back(facts_of(file));
  if (options.json) {
    j["files"] = files;
    std::cout << j.dump(2) << '\n';
    return 0;
  }
  for (const ordered_json& file : files) print(file), std::cout << '\n';
  print(j);
  if (!options.to.empty()) std::cout << fmt::format("{:<14}{}\n", "written to", options.to);
  return 0;
}

}  // namespace minim
