// core/warn.h -- what a person should know of, but need not mend: one line, told once.
#pragma once
#include <functional>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace minim {

/// Hears the warnings of this thread while it lives; without one, each text goes to stderr once per
/// thread, as "minim: warning: TEXT".
class WarningScope {
 public:
  using Handler = std::function<void(const std::string&)>;
  explicit WarningScope(Handler handler) : outer_(std::exchange(current_, std::move(handler))) {}
  ~WarningScope() { current_ = std::move(outer_); }
  WarningScope(const WarningScope&) = delete;
  WarningScope& operator=(const WarningScope&) = delete;

  static void tell(const std::string& text) {
    thread_local std::set<std::string> told;
    if (current_)
      current_(text);
    else if (told.insert(text).second)
      std::cerr << "minim: warning: " + text + '\n';
  }

 private:
  static inline thread_local Handler current_;
  Handler outer_;
};

/// Warns with the arguments streamed together, as fail() throws.
template <class... Parts>
void warn(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  WarningScope::tell(text.str());
}

}  // namespace minim
