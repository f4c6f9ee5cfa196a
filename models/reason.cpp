#include "minim/models/reason.h"

#include <filesystem>

namespace minim::models {

std::string reason(const std::exception& error) {
  if (const auto* f = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    std::string text = f->path1().empty() ? "" : "'" + f->path1().string() + "'";
    if (!f->path2().empty()) text += " to '" + f->path2().string() + "'";
    return text + (text.empty() ? "" : ": ") + f->code().message();
  }
  std::string text = error.what();
  if (text.starts_with("[json.exception")) text.erase(0, text.find("] ") + 2);
  return text;
}

}  // namespace minim::models
