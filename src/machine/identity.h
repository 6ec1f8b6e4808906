// What has to be the same for what one job learned to be worth something to the next: the
// processor, the kernel, the machine, what of it the ranks may use, and how many they are.
//
// Thread rule: values; any thread.
#pragma once

#include <string>

#include "topology/spread.h"

namespace unisono::machine {

struct Identity {
  std::string processor;
  std::string kernel;  ///< release
  int cpus = 1;        ///< that the ranks of the host may use together, whole ones
  double quota = 0;    ///< processors' worth of time that their control group grants; 0: no limit
  int ranks = 1;       ///< on the host
  int processes = 1;   ///< that these are in
  std::string host;    ///< name: machines may have a folder in common
  topology::Spread spread;  ///< of those processors

  bool operator==(const Identity&) const = default;
};

/// Of this machine, where ranks run on processors of this mask; they are the caller's to count.
Identity read_identity(const std::string& cpus, int ranks, int processes);

/// A line for each, as "kernel 6.18.5\n".
std::string text_of(const Identity& identity);

}  // namespace unisono::machine
