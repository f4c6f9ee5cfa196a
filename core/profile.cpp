#include "minim/core/profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>

#include "minim/core/convert.h"
#include "minim/core/denormals.h"
#include "minim/core/tensor.h"
#include "minim/core/walk.h"

namespace minim {

const char* name_of(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"forward",   "backward", "casts",
                                                   "optimizer", "data",     "overhead"};
  return names[size_t(phase)];
}

int64_t Profile::now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

Profile::Row& Profile::row(const char* name, Phase phase) {
  return rows_.try_emplace({name, phase}, Row{name, phase}).first->second;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> all;
  for (const auto& [key, row] : rows_) all.push_back(row);
  std::ranges::stable_sort(all, std::greater(), &Row::ns);
  return all;
}

std::array<int64_t, kPhases> Profile::ns_by_phase() const {
  std::array<int64_t, kPhases> sums{};
  for (const auto& [key, row] : rows_) sums[size_t(row.phase)] += row.ns;
  return sums;
}

int64_t Profile::ns() const {
  const auto sums = ns_by_phase();
  return std::accumulate(sums.begin(), sums.end(), int64_t{0});
}

namespace {

int64_t denormals_of(const Arg& x) {
  const detail::Walk<1> walk(x.shape, {&x.strides});
  const Index step = walk.stride[0];
  std::atomic<int64_t> found = 0;
  walk.run([&](const std::array<Index, 1>& at, Index n) {
    const Index run = step == 1 ? n : 1;
    for (Index i = 0; i < n; i += run)
      found += count_denormals(advance(x.data, x.dtype, at[0] + i * step), x.dtype, run);
  });
  return found;
}

}  // namespace

void Profile::see(const char* name, Phase phase, std::span<const Arg> results) {
  const int64_t begin = now();
  for (const Arg& x : results) {
    if (!x.data || !is_floating(x.dtype)) continue;
    Tensor keep;
    const int64_t found = denormals_of(on_host(x, keep));
    row(name, phase).denormals += found;
    Entries& e = entries_[size_t(x.dtype)];
    e.seen += x.shape.numel();
    e.denormal += found;
  }
  if (open_) open_->inside_ += now() - begin;
}

void Timed::begin(const char* name, Phase phase) {
  outer_ = std::exchange(profile_->open_, this);
  const bool theirs =
      outer_ && (outer_->phase_ == Phase::optimizer || outer_->phase_ == Phase::data);
  name_ = name;
  phase_ = theirs ? outer_->phase_ : phase;
  inside_ = 0;
  start_ = Profile::now();
}

void Timed::end() {
  const int64_t end = Profile::now(), took = end - start_;
  Profile& p = *profile_;
  Profile::Row& row = p.row(name_, phase_);
  ++row.count;
  row.ns += took - inside_;
  p.open_ = outer_;
  if (outer_) outer_->inside_ += took;
  if (p.spans_.size() < p.most_spans_)
    p.spans_.push_back({name_, phase_, start_ - p.start_, end - p.start_});
  else
    ++p.left_out_;
}

}  // namespace minim
