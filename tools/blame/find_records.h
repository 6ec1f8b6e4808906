// The records of a job's ranks: the files of a directory, or the memory of living processes, which
// /proc shows to their own user. One thread.
#pragma once

#include <string>
#include <vector>

#include "recorder/blame.h"

namespace unisono::blame {

struct Found {
  std::vector<recorder::Witness> witnesses;  ///< of one job, by rank
  std::vector<std::string> notes;            ///< what was left out, and why
};

/// In `folder`, of `job` or, where that is empty, of the job that began last. kInvalidArgument
/// where there is none; kSystem where it cannot be read.
Result<Found> find_in_folder(const std::string& folder, const std::string& job);
/// Of the job that the process, or one that it has started, is a rank of, or that it has launched.
Result<Found> find_of_process(int pid, const std::string& job);

/// What this host knows of the process that a record is of.
recorder::Life life_of(const recorder::RankRecord& record);

}  // namespace unisono::blame
