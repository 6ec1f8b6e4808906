// The command line of `unisono run`: torchrun's spellings where torchrun has the flag. Pure
// parsing and checking; nothing is started or read from the machine here.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "tools/run/restart_policy.h"

namespace unisono::run {

enum class BindTo : std::uint8_t {
  kAuto,  ///< an equal share of the cores for each rank, where there are enough
  kCore,  ///< exactly one core each
  kNone,
};

struct RunArguments {
  int local_size = 1;  ///< ranks on this node; 0: one for each usable core
  int node_count = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  bool master_address_given = false;
  int master_port = 0;  ///< 0: the launcher picks a free one
  std::string run_id;   ///< empty: made by the launcher
  std::string role = "default";
  BindTo bind_to = BindTo::kAuto;
  bool prefix = true;
  bool keep_going = false;
  int max_restarts = 0;
  Restart restart = Restart::kFailed;
  Duration report_time = std::chrono::seconds(5);
  Duration grace_time = std::chrono::seconds(5);
  std::string job_key_file;
  std::vector<std::string> command;
  std::vector<std::string> notes;  ///< to be told: what was accepted and does nothing

  /// Launchers of several nodes have something to say to each other.
  bool have_launchers_to_meet() const { return node_count > 1 && max_restarts > 0; }
};

/// Parsing ended the command: help was asked for, or the line is wrong.
struct EarlyExit {
  int status = 0;
  std::string text;  ///< for stdout when status is 0, else for stderr
};

std::variant<RunArguments, EarlyExit> parse_arguments(int argc, char** argv);

}  // namespace unisono::run
