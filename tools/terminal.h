// tools/terminal.h -- what a person sees while minim works: one live line on a terminal, plain
// lines elsewhere, and tables with aligned columns.
#pragma once
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace minim {

bool is_terminal(int file_descriptor);    // one that can rewrite a line
int terminal_width(int file_descriptor);  // in columns; 80 where nobody knows

/// One training step.
struct StepReport {
  std::int64_t step = 0, steps = 0;  // steps done, steps planned
  double loss = 0;                   // nats per token
  bool has_floor = false;            // is the source's entropy known (the toy language)?
  double above_floor = 0;            // loss minus the floor
  double lr = 0;
  double grad_norm = 0, clipped_norm = 0;  // before and after clipping
  double scale = 1;                        // of the loss
  std::int64_t skipped = 0;                // steps not applied so far
  double skip_share = 0;                   // of the last 100 steps, calibration apart
  double max_logit = 0;                    // largest |logit|
  double tokens_per_second = 0;
  double seconds_left = 0;
  std::string note;  // what the scaler has to say about this step
};

/// The report in one line of at most `width` columns: what matters least goes first when they do
/// not all fit.
std::string live_line(const StepReport& report, int width);

/// The whole report in one line.
std::string plain_line(const StepReport& report);

/// "nan", "inf", or the number in fmt's format, such as ".4f"; a nan has no sign.
std::string number(double value, std::string_view format);

/// "59s", "12:05" or "3:00:07".
std::string duration(double seconds);

/// Shows reports as they come. Live: rewritten in place, at most every 50 ms. Plain: one line every
/// `every` steps and for the last. Whatever is written through note(), and the end, leave a live
/// line intact.
class Progress {
 public:
  Progress(std::ostream& out, bool live, std::int64_t every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void report(const StepReport& report);
  void note(std::string_view message);

 private:
  std::ostream& out_;
  bool live_;
  std::int64_t every_;
  std::string shown_;  // the live line on the screen
  std::chrono::steady_clock::time_point next_;
};

/// Rows of cells in aligned columns; columns of numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  /// Throws Error unless the row has one cell per column.
  void add(std::vector<std::string> row);
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace minim
