#include "minim/tools/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>

#include "minim/core/error.h"

namespace minim {

bool is_terminal(int file_descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(file_descriptor) && kind && std::string_view(kind) != "dumb";
}

int terminal_width(int file_descriptor) {
  winsize size{};
  return ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string number(double value, std::string_view format) {
  if (std::isnan(value)) return "nan";
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), value);
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

namespace {

struct Field {
  int rank;  // the highest goes first when the line is too long
  std::string text;
};

std::vector<Field> fields(const StepReport& r) {
  std::vector<Field> out = {{0, fmt::format("{}/{}", r.step, r.steps)},
                            {0, "loss " + number(r.loss, ".4f")}};
  if (r.has_floor) out.push_back({1, "floor " + number(r.above_floor, "+.4f")});
  out.push_back({6, "lr " + number(r.lr, ".2e")});
  out.push_back(
      {4, fmt::format("norm {} -> {}", number(r.grad_norm, ".3g"), number(r.clipped_norm, ".3g"))});
  out.push_back({5, "scale " + number(r.scale, "g")});
  out.push_back({r.skipped ? 3 : 8, fmt::format("skipped {}", r.skipped)});
  out.push_back({7, "|logit| " + number(r.max_logit, ".3g")});
  out.push_back({3, number(r.tokens_per_second, ".0f") + " tok/s"});
  out.push_back({2, duration(r.seconds_left) + " left"});
  return out;
}

std::string join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

std::string bar(const StepReport& r, int cells) {
  const double done = r.steps > 0 ? std::clamp(double(r.step) / double(r.steps), 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(done * cells);
  return "[" + std::string(full, '#') + std::string(cells - full, '.') + "] ";
}

constexpr int kBarCells = 12;
constexpr int kBarColumns = kBarCells + 3;

}  // namespace

std::string plain_line(const StepReport& report) { return join(fields(report)); }

std::string live_line(const StepReport& report, int width) {
  const auto room = static_cast<std::size_t>(std::max(width, 0));
  std::vector<Field> shown = fields(report);
  const bool with_bar = room >= 4 * kBarColumns;
  const std::size_t for_fields = with_bar ? room - kBarColumns : room;
  while (shown.size() > 1 && join(shown).size() > for_fields)
    shown.erase(std::ranges::max_element(shown, {}, &Field::rank));
  return ((with_bar ? bar(report, kBarCells) : "") + join(shown)).substr(0, room);
}

Progress::Progress(std::ostream& out, bool live, std::int64_t every)
    : out_(out), live_(live), every_(std::max<std::int64_t>(every, 1)) {}

Progress::~Progress() {
  if (!shown_.empty()) out_ << '\n' << std::flush;
}

void Progress::report(const StepReport& report) {
  const bool last = report.step >= report.steps;
  if (!live_) {
    if (last || report.step % every_ == 0) out_ << plain_line(report) << std::endl;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!last && now < next_) return;
  next_ = now + std::chrono::milliseconds(50);
  shown_ = live_line(report, terminal_width(STDOUT_FILENO) - 1);  // a full last column would wrap
  out_ << "\r\x1b[K" << shown_ << std::flush;
}

void Progress::note(std::string_view message) {
  if (!shown_.empty()) out_ << "\r\x1b[K";
  out_ << message << '\n' << shown_ << std::flush;
}

namespace {

std::size_t columns(std::string_view utf8) {  // code points: bytes that do not continue one
  return std::ranges::count_if(utf8, [](char c) { return (c & 0xc0) != 0x80; });
}

bool looks_numeric(std::string_view cell) {
  if (cell.empty() || cell == "nan" || cell == "inf" || cell == "-inf" || cell == "-") return true;
  const std::size_t digit = cell.find_first_of("0123456789");
  return digit != cell.npos && cell.substr(0, digit).find_first_not_of("+-.") == cell.npos;
}

}  // namespace

Table::Table(std::vector<std::string> header) : rows_{std::move(header)} {}

void Table::add(std::vector<std::string> row) {
  if (row.size() != rows_[0].size())
    fail("a table row has ", row.size(), " cells, expected ", rows_[0].size());
  rows_.push_back(std::move(row));
}

std::string Table::str() const {
  const std::size_t count = rows_[0].size();
  std::vector<std::size_t> width(count);
  std::vector<bool> right(count, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < count; ++c) {
      width[c] = std::max(width[c], columns(rows_[r][c]));
      if (r > 0 && !looks_numeric(rows_[r][c])) right[c] = false;
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < count; ++c) {
      const std::string pad(width[c] - columns(row[c]), ' ');
      line += (c ? "  " : "") + (right[c] ? pad + row[c] : row[c] + pad);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

}  // namespace minim
