// Records as a trace of Chrome's format, which ui.perfetto.dev and chrome://tracing show: a process
// for each rank, and for each of its communicators a thread of collectives and one of messages, or
// more of them where several were in flight at a time.
//
// Thread rule: values; one thread.
#pragma once

#include <span>
#include <string>

#include "recorder/record_reader.h"

namespace unisono::recorder {

/// The trace of one job's records, in microseconds after the midnight (UTC) before the first of
/// them began, by each host's own CLOCK_REALTIME. Calls that still run have no end there either.
std::string trace_of(std::span<const RankRecord> records);

}  // namespace unisono::recorder
