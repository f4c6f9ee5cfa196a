#include <doctest/doctest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "minim/core/error.h"
#include "minim/tools/terminal.h"

using namespace minim;

namespace {

StepReport report_at(std::int64_t step) {
  StepReport r;
  r.step = step;
  r.steps = 200;
  r.loss = 1.93456;
  r.has_floor = true;
  r.above_floor = 0.0123;
  r.lr = 1e-3;
  r.grad_norm = 1.72;
  r.clipped_norm = 1;
  r.scale = 65536;
  r.skipped = 2;
  r.max_logit = 12.5;
  r.tokens_per_second = 8123.4;
  r.seconds_left = 83;
  return r;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a plain line tells everything") {
  CHECK(plain_line(report_at(100)) ==
        "100/200  loss 1.9346  floor +0.0123  lr 1.00e-03  norm 1.72 -> 1  scale 65536  "
        "skipped 2  "
        "|logit| 12.5  8123 tok/s  1:23 left");
  StepReport r = report_at(100);
  r.has_floor = false;
  CHECK_FALSE(has(plain_line(r), "floor"));
}

TEST_CASE("a live line fits every width and drops what matters least first") {
  for (int width = 0; width < 200; ++width)
    CHECK(live_line(report_at(100), width).size() <= static_cast<std::size_t>(width));
  CHECK(live_line(report_at(100), 199) == "[######......] " + plain_line(report_at(100)));
  const std::string narrow = live_line(report_at(100), 79);
  for (const char* kept : {"[######......] 100/200", "loss 1.9346", "floor +0.0123", "left"})
    CHECK(has(narrow, kept));
  CHECK_FALSE(has(narrow, "|logit|"));
  CHECK(has(live_line(report_at(0), 199), "[............] 0/200"));
  CHECK(has(live_line(report_at(200), 199), "[############] 200/200"));
}

TEST_CASE("a nan is printed as nan, whatever its sign") {
  for (const double nan : {std::nan(""), -std::nan("")}) {
    StepReport r = report_at(100);
    r.loss = r.grad_norm = nan;
    CHECK(has(plain_line(r), "loss nan"));
    CHECK(has(plain_line(r), "norm nan ->"));
    CHECK_FALSE(has(plain_line(r), "-nan"));
  }
  CHECK(number(INFINITY, ".4f") == "inf");
}

TEST_CASE("durations read as clocks do") {
  CHECK(duration(0) == "0s");
  CHECK(duration(59.4) == "59s");
  CHECK(duration(59.6) == "1:00");
  CHECK(duration(3600 * 3 + 7) == "3:00:07");
  CHECK(duration(std::nan("")) == "?");
  CHECK(duration(-1) == "?");
}

TEST_CASE("away from a terminal there is one line per interval and one for the last step") {
  std::ostringstream out;
  Progress progress(out, false, 90);
  for (std::int64_t step = 1; step <= 200; ++step) progress.report(report_at(step));
  const std::string expected = plain_line(report_at(90)) + "\n" + plain_line(report_at(180)) +
                               "\n" + plain_line(report_at(200)) + "\n";
  CHECK(out.str() == expected);
}

TEST_CASE("on a terminal one line is rewritten, and notes and the end leave it whole") {
  std::ostringstream out;
  {
    Progress progress(out, true, 1);
    progress.report(report_at(1));
    progress.report(report_at(2));  // too soon after the first to be seen
    progress.note("saved");
    progress.report(report_at(200));
  }
  const std::string text = out.str();
  CHECK(text.starts_with("\r\x1b[K[............] 1/200"));
  CHECK_FALSE(has(text, " 2/200"));
  CHECK(has(text, "\r\x1b[Ksaved\n[............] 1/200"));
  CHECK(has(text, "\r\x1b[K[############] 200/200"));
  CHECK(text.ends_with("\n"));
}

TEST_CASE("a table aligns its columns, numbers to the right") {
  Table table({"precision", "loss", "why"});
  table.add({"fp32", "1.25", "reference"});
  table.add({"größer", "12.5", ""});
  table.add({"none", "nan", "x"});
  CHECK(table.str() ==
        "precision  loss  why\n"
        "fp32       1.25  reference\n"
        "größer     12.5\n"
        "none        nan  x\n");
  CHECK_THROWS_AS(table.add({"too", "short"}), Error);
}
