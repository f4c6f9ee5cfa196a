// core/profile.h -- where the time of a thread goes, and whether denormal numbers appear. Scopes
// nest, and each counts the time that none inside it took, so the rows add up to the whole. Off
// (null) by default, at the cost of one predictable branch per scope.
#pragma once
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "minim/core/op_args.h"

namespace minim {

enum class Phase : uint8_t { forward, backward, casts, optimizer, data, overhead };
inline constexpr size_t kPhases = 6;
const char* name_of(Phase phase);

/// What one thread did while a ProfileScope named this profile. Kernels' threads are not looked at:
/// a scope around a kernel lasts as long as its slowest thread.
class Profile {
 public:
  /// What ran under one name in one phase.
  struct Row {
    const char* name;
    Phase phase;
    int64_t count = 0, ns = 0;
    int64_t denormals = 0;  ///< entries of its floating results
  };
  /// One scope from its begin to its end, in ns since the profile was made.
  struct Span {
    const char* name;
    Phase phase;
    int64_t begin, end;
  };
  struct Entries {
    int64_t seen = 0, denormal = 0;
  };

  /// @param most_spans how many spans() are kept; those after them are only counted.
  explicit Profile(size_t most_spans = 0) : most_spans_(most_spans) {}

  std::vector<Row> rows() const;  ///< the longest first
  std::array<int64_t, kPhases> ns_by_phase() const;
  int64_t ns() const;  ///< the sum over all rows
  const std::vector<Span>& spans() const { return spans_; }
  int64_t spans_left_out() const { return left_out_; }
  /// Of all floating results seen, by dtype.
  const std::array<Entries, kDTypes>& entries() const { return entries_; }

  /// Counts the denormal entries of an op's results. The time that this takes is nobody's.
  void see(const char* name, Phase phase, std::span<const Arg> results);

  static Profile* current() { return current_; }

 private:
  friend class ProfileScope;
  friend class Timed;
  static int64_t now();
  Row& row(const char* name, Phase phase);
  [[gnu::visibility("default")]] static inline thread_local Profile* current_ = nullptr;

  class Timed* open_ = nullptr;  ///< the innermost scope
  int64_t start_ = now();
  std::map<std::pair<std::string_view, Phase>, Row> rows_;
  std::array<Entries, kDTypes> entries_{};
  std::vector<Span> spans_;
  size_t most_spans_;
  int64_t left_out_ = 0;
};

/// Profiles this thread; null profiles nothing.
class ProfileScope {
 public:
  explicit ProfileScope(Profile* profile) : outer_(std::exchange(Profile::current_, profile)) {}
  ~ProfileScope() { Profile::current_ = outer_; }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* outer_;
};

/// `Timed timed("matmul", Phase::forward);` -- what runs in this scope. An op that runs inside a
/// scope of the optimizer or the data counts for that phase.
class Timed {
 public:
  Timed(const char* name, Phase phase) : profile_(Profile::current()) {
    if (profile_) [[unlikely]]
      begin(name, phase);
  }
  ~Timed() {
    if (profile_) [[unlikely]]
      end();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  /// The profile's part of an op: counts the denormal entries of what it made. Once, at its end.
  void made(std::span<const Arg> results) {
    if (profile_) [[unlikely]]
      profile_->see(name_, phase_, results);
  }

 private:
  friend class Profile;
  void begin(const char* name, Phase phase);
  void end();

  Profile* profile_;
  Timed* outer_;
  const char* name_;
  Phase phase_;
  int64_t start_, inside_;  ///< ns that scopes inside this one took
};

}  // namespace minim
