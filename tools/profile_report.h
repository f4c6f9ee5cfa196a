// tools/profile_report.h -- what `minim train --profile` shows: where the time of a step went, by
// phase and by op, and whether denormal numbers appeared; also as a Chrome trace.
#pragma once
#include <iosfwd>
#include <string>

#include "minim/core/allocator.h"
#include "minim/core/profile.h"
#include "minim/optim/optimizer.h"

namespace minim {

/// A line a phase, then a line an op; `steps` are those that `profile` saw.
std::string profile_report(const Profile& profile, int64_t steps);

/// Denormal numbers among all results that ops made, and in the optimizer's state as it is now.
std::string denormal_report(const Profile& profile, const optim::Optimizer& optimizer);

/// Complete events ("ph": "X", times in us) for chrome://tracing or ui.perfetto.dev, as JSON.
void write_trace(const Profile& profile, std::ostream& out);

/// "peak memory 12.3 MB: activations 8.1 MB, ..."; kinds that were not used are left out. Each kind
/// has its own peak, so they may come to more than the whole.
std::string memory_report(const MemoryStats& stats);

}  // namespace minim
