// Jobs whose ranks believe to be on several hosts: each publishes the name of a host of its own
// choosing, so that ranks of two names share nothing but the network.
// Thread rule: run_hosts() on a thread that is part of no job; bodies run on their ranks' own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "unisono/unisono.hpp"

namespace unisono::test {

struct HostJob {
  std::vector<int> hosts = {0, 0, 1, 1};  ///< of each rank
  bool processes = false;
  int ranks_of_a_process = 1;      ///< with `processes`: its threads
  bool watched = true;             ///< by a rank of another job in each process
  std::vector<int> devices = {0};  ///< as SpawnOptions::devices; empty: none is named
  std::string transport = "auto";
};

/// Throws what spawn() does.
void spawn_hosts(const HostJob& job, const std::function<void(Communicator&)>& body);
/// What a body throws fails the test.
void run_hosts(const HostJob& job, const std::function<void(Communicator&)>& body);

}  // namespace unisono::test
