// Records as one trace of Chrome's format, which Perfetto and chrome://tracing show: a process for
// each rank, a thread for each communicator. Pure functions; one thread.
#pragma once

#include <span>
#include <string>

#include "recorder/blame.h"

namespace unisono::blame {

/// `witnesses` are of one job. Times of different hosts are those of their own CLOCK_REALTIME.
std::string trace_json(std::span<const recorder::Witness> witnesses);

}  // namespace unisono::blame
