// Measures and checks one row: one problem in one mode. Collective; one thread per rank.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/perf/buffers.h"
#include "tools/perf/cases.h"
#include "tools/perf/device_buffers.h"
#include "tools/perf/lockstep.h"
#include "tools/perf/options.h"
#include "tools/perf/pattern.h"
#include "tools/perf/rank_sync.h"

namespace unisono::perf {

struct Row {
  Problem problem;
  std::uint64_t bytes = 0;
  Mode mode = Mode::kHot;
  BufferKind buffers = BufferKind::kPrivate;
  Timing timing;                       ///< slowest rank, one way
  std::optional<std::uint64_t> wrong;  ///< elements on all ranks, where checked
  /// What ran: "shm" and "native", say.
  std::string transport, algorithm;

  double algbw_gbps() const;
  double busbw_gbps() const;
};

/// The arena that the largest of the options' rows needs, the same on all ranks.
std::size_t arena_bytes_for(const Options& options, int ranks, std::size_t cache_bytes);

/// What `rank` puts into a call.
Pattern input_of(const Problem& problem, Rank rank);
/// What must come out there.
Pattern result_of(const Problem& problem, const Expected& part);

/// Fills timing and wrong. The arena must have arena_bytes_for(), and be memory of the device where
/// there is one.
void measure_row(Communicator& communicator, RankSync& sync, Arena& arena, DeviceBuffers* device,
                 const Options& options, std::size_t cache_bytes, Row& row);

}  // namespace unisono::perf
