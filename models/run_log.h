// models/run_log.h -- log.jsonl: one JSON object a line, kept whole over kills and resumes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace minim::models {

/// Appends lines to a file, creating it; each line is handed to the system before append() returns.
class RunLog {
 public:
  /// @throws Error when the file cannot be opened, or is a link.
  explicit RunLog(std::filesystem::path path);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  /// `record` is an object; NaN and infinities become null, which JSON has no words for.
  /// @throws Error when it is not an object or cannot be written.
  void append(const nlohmann::ordered_json& record);

 private:
  std::filesystem::path path_;
  int file_;
};

/// Drops the lines whose "step" is beyond `step`, those marked "final" (the end of a run, resumed
/// or not, writes them anew), and a last line that a kill tore; lines without a "step" stay. Called
/// before a RunLog is opened to resume from `step`. A missing file is left missing.
/// @throws Error naming the line when one before the last is not a JSON object.
void truncate_to_step(const std::filesystem::path& path, int64_t step);

}  // namespace minim::models
