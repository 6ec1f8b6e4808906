// The records of a job's ranks: the files of a directory, or the memory of living processes, which
// /proc shows to their own user. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "recorder/blame.h"

namespace unisono::blame {

/// The records of one job, by rank; never empty.
using Job = std::vector<recorder::Witness>;

inline constexpr std::size_t kOthersMax = 32;  ///< of a folder; a line each

struct Found {
  Job witnesses;                    ///< of the job that was asked for
  std::vector<Job> others;          ///< which are there as well, the one that began first in front;
                                    ///< read once, so that who is missing there is not known
  std::size_t others_left_out = 0;  ///< that began before those
  std::vector<std::string> notes;   ///< what was left out, and why
};

/// When its first rank joined, by that one's CLOCK_REALTIME.
std::int64_t began_ns(const Job& job);

/// In `folder`, of `job` or, where that is empty, of the job that began last. kInvalidArgument
/// where there is none; kSystem where it cannot be read.
Result<Found> find_in_folder(const std::string& folder, const std::string& job);
/// Of the job that the process, or one that it has started, is a rank of, or that it has launched.
Result<Found> find_of_process(int pid, const std::string& job);

/// What this host knows of the process that a record is of.
recorder::Life life_of(const recorder::RankRecord& record);

}  // namespace unisono::blame
