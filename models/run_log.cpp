#include "minim/models/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "minim/core/error.h"
#include "minim/models/json.h"
#include "minim/models/read_file.h"
#include "minim/models/sync_file.h"

namespace minim::models {

using Json = nlohmann::ordered_json;

RunLog::RunLog(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  if (file_ < 0)
    fail("log ", path_, " cannot be opened: ", errno == ELOOP ? "it is a link" : strerror(errno));
}

RunLog::~RunLog() { ::close(file_); }

void RunLog::append(const Json& record) {
  if (!record.is_object()) fail("a line of log ", path_, " must be a JSON object");
  const std::string line = record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  if (const int why = write_all(file_, line))
    fail("log ", path_, " cannot be written: ", std::strerror(why));
}

void truncate_to_step(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_file(path, "log");
  std::string kept;
  int64_t number = 1;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1, ++number) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object()) {
      if (end + 1 >= text.size()) break;
      fail("log ", path, " line ", number, " is not a JSON object: mend or delete that line");
    }
    if (record.contains("final")) continue;
    const auto at = record.find("step");
    if (at == record.end() || !at->is_number() || at->get<double>() <= double(step))
      kept += line + '\n';
  }
  if (kept != text) write_file_atomically(path, kept);
}

}  // namespace minim::models
