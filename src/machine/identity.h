// What has to be the same for what one job learned to be worth something to the next: the
// processor, the kernel, what of the machine the ranks may use, and how many they are.
//
// Thread rule: values; any thread.
#pragma once

#include <string>

namespace unisono::machine {

struct Identity {
  std::string processor;
  std::string kernel;  ///< release
  int cpus = 1;        ///< that the ranks of the host may use together, whole ones
  double quota = 0;    ///< processors' worth of time that their control group grants; 0: no limit
  int ranks = 1;       ///< on the host
  int processes = 1;   ///< that these are in

  bool operator==(const Identity&) const = default;
};

/// Of this machine; the ranks are the caller's to count.
Identity read_identity(int cpus, int ranks, int processes);

/// A line for each, as "kernel 6.18.5\n".
std::string text_of(const Identity& identity);

}  // namespace unisono::machine
