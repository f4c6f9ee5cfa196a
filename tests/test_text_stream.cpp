#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "minim/tools/text_stream.h"

using namespace minim;

namespace {

const std::string kReplaced = "\xef\xbf\xbd";

/// What has been written after each of the bytes, and at the end.
std::vector<std::string> shown(const std::string& bytes) {
  std::ostringstream out;
  std::vector<std::string> after;
  {
    TextStream text(out);
    for (char c : bytes) {
      text.write(std::string(1, c));
      after.push_back(out.str());
    }
  }
  after.push_back(out.str());
  return after;
}

}  // namespace

TEST_CASE("text stream: a character is shown when its last byte comes, and not before") {
  CHECK(shown("aé") == std::vector<std::string>{"a", "a", "aé", "aé"});
  CHECK(shown("€") == std::vector<std::string>{"", "", "€", "€"});
  CHECK(shown("😀") == std::vector<std::string>{"", "", "", "😀", "😀"});
}

TEST_CASE("text stream: bytes that belong to no character are replaced, their neighbours are not") {
  CHECK(shown("a\x80z").back() == "a" + kReplaced + "z");
  CHECK(shown("\xc3z").back() == kReplaced + "z");
  CHECK(shown("\xe2\x82z").back() == kReplaced + kReplaced + "z");
  CHECK(shown("\xff\xc3\xa9").back() == kReplaced + "é");
  CHECK(shown("\xed\xa0\x80").back() == kReplaced + kReplaced + kReplaced);  // a surrogate
}

TEST_CASE("text stream: a character that was never finished is replaced at the end") {
  CHECK(shown("a\xf0\x9f").at(2) == "a");
  CHECK(shown("a\xf0\x9f").back() == "a" + kReplaced + kReplaced);
}
