// Memory for the records of the ranks that a launcher starts, which it holds so that they outlive
// the ranks, and what they say of a failed job. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "recorder/blame.h"

namespace unisono::run {

class RankRecords {
 public:
  /// For as many ranks; ranks without memory keep their records themselves. None where
  /// UNISONO_RECORDER in `environment` says that they go elsewhere, or where so few descriptors may
  /// be open that the ranks' streams need them.
  RankRecords(int ranks, const std::vector<std::string>& environment);

  /// Tells the `local_rank`th of its memory, in its environment; of an outer launcher's no more.
  void announce(int local_rank, std::vector<std::string>* environment) const;
  /// Before the `local_rank`th is started, anew or to rejoin the others: what is in its memory is
  /// of its predecessor, which is gone.
  void on_start(int local_rank, bool rejoins);
  /// In the new process of the rank, before exec: it inherits its memory, and no other rank's.
  void hand_over(int local_rank) const;

  /// Whether the `local_rank`th has its memory and has joined no job since it was started.
  bool has_joined_none(int local_rank) const;

  /// Of a failed job: who stopped first and who waited for whom, as one line, or where ranks write
  /// files how to read them; empty where no record tells. `lives`: by local rank. kGone: it ended
  /// by itself, with anything but success; kUnknown: its end tells nothing, because the launcher
  /// ended it or it exited with 0. While some run, the line names who stopped first alone, and is
  /// empty where nobody is known to have.
  std::string verdict(const std::vector<recorder::Life>& lives) const;

 private:
  struct Memory {
    UniqueFd fd;
    std::int64_t predecessor_opened_ns = 0;  // its record's; 0: there is none
    bool rejoins = false;
  };
  struct Job {
    std::vector<recorder::Witness> witnesses;
    std::int64_t newest_ns = 0;  // when its newest record began
    bool has_gone = false;       // a rank of it

    bool is_whole() const;
  };
  bool has_new_record() const;
  std::map<std::string, Job> read_jobs(const std::vector<recorder::Life>& lives) const;

  std::vector<Memory> memory_;  // by local rank
  std::string folder_;          // where the ranks write files of their own
  std::filesystem::file_time_type began_;
};

}  // namespace unisono::run
