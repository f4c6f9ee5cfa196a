#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "minim/core/error.h"
#include "minim/models/read_file.h"
#include "minim/models/run_log.h"

using namespace minim;
using namespace minim::models;

namespace {

struct TempLog {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("minim-log-" + std::to_string(::getpid()));
  explicit TempLog(const std::string& text = "") { std::ofstream(path, std::ios::binary) << text; }
  ~TempLog() { std::filesystem::remove(path); }
  std::string text() const { return read_file(path, "test"); }
};

std::string truncated(const std::string& text, int64_t step) {
  const TempLog log(text);
  truncate_to_step(log.path, step);
  return log.text();
}

}  // namespace

TEST_CASE("run log: a line is in the file as soon as append returns, in the order of its fields") {
  const TempLog temp;
  RunLog log(temp.path);
  log.append({{"step", 1}, {"loss", 2.5}});
  CHECK(temp.text() == "{\"step\":1,\"loss\":2.5}\n");
  log.append({{"step", 2}, {"loss", NAN}, {"note", "a\nb"}});
  CHECK(temp.text() ==
        "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null,\"note\":\"a\\nb\"}\n");
  RunLog(temp.path).append({{"step", 3}});
  CHECK(temp.text().ends_with("}\n{\"step\":3}\n"));
}

TEST_CASE("run log: what cannot be written is refused") {
  const TempLog temp;
  CHECK_THROWS_WITH_AS(RunLog(temp.path).append({1, 2}), doctest::Contains("JSON object"), Error);
  CHECK_THROWS_WITH_AS(RunLog("/nowhere/log"), doctest::Contains("/nowhere/log"), Error);
  CHECK_THROWS_WITH_AS(RunLog("/dev/full").append({{"step", 1}}), doctest::Contains("No space"),
                       Error);
}

TEST_CASE("run log: truncation keeps the steps up to the given one and lines without a step") {
  const std::string head = "{\"event\":\"start\"}\n{\"step\":1}\n{\"step\":2}\n";
  CHECK(truncated(head + "{\"step\":3}\n{\"step\":10}\n", 2) == head);
  CHECK(truncated(head, 2) == head);
  CHECK(truncated(head, 0) == "{\"event\":\"start\"}\n");
  CHECK(truncated("{\"step\":5}\n{\"step\":1}\n", 2) == "{\"step\":1}\n");
  CHECK(truncated("", 2) == "");
}

TEST_CASE("run log: a torn last line goes, wherever it was torn, and a whole one gets its end") {
  const std::string first = "{\"step\":1}\n", last = "{\"step\":2,\"x\":\"}\"}";
  for (size_t n = 0; n < last.size(); ++n) CHECK(truncated(first + last.substr(0, n), 5) == first);
  CHECK(truncated(first + last, 5) == first + last + "\n");
  CHECK(truncated(first + std::string(8, '\0') + "\n", 5) == first);
}

TEST_CASE("run log: a damaged line in the middle is an error that says which") {
  CHECK_THROWS_WITH_AS(truncated("{\"step\":1}\n{\"st\n{\"step\":2}\n", 5),
                       doctest::Contains("line 2"), Error);
}

TEST_CASE("run log: a missing log is left missing") {
  CHECK_NOTHROW(truncate_to_step("/nowhere/log.jsonl", 3));
}
