// Communicators of the library's own inside of one whose members have GPUs on several hosts: the
// members of this rank's host, and one member of every host. They fail with it and are closed with
// it; a failure of theirs is a failure of the call that uses them.
//
// Thread rule: the engine's lock, but for close().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "unisono/error.h"
#include "unisono/traffic.h"
#include "unisono/types.h"

namespace unisono::detail {

class CommunicatorState;

class HostGroups {
 public:
  /// Ranks of the communicator around them, ascending. Every host has as many members.
  struct Layout {
    std::vector<Rank> local;   ///< of this rank's host
    std::vector<Rank> across;  ///< of this rank's place on every host
  };
  /// Each named by its group's first rank, with take_communicator_id().
  struct Ids {
    std::uint32_t local = 0;
    std::uint32_t across = 0;
  };

  HostGroups(CommunicatorState& around, const Layout& layout, const Ids& ids);
  ~HostGroups();
  HostGroups(const HostGroups&) = delete;

  CommunicatorState& local() { return *local_; }
  CommunicatorState& across() { return *across_; }
  /// The rank of a group's member in the communicator around it; -1 for -1.
  Rank outer_rank(const CommunicatorState& group, Rank rank) const;
  /// `failure` of a group, with the ranks of the communicator around it.
  Status outer_status(const CommunicatorState& group, const Status& failure) const;

  /// `cause` as the communicator around has it.
  void fail(const Status& cause);
  /// Without the lock; nothing of theirs runs. Idempotent.
  void close();
  /// What went between hosts, by peer of the communicator around. Calls are not counted.
  void add_traffic(TrafficReport* report) const;

 private:
  std::shared_ptr<CommunicatorState> make(const std::vector<Rank>& ranks, std::uint32_t id) const;

  CommunicatorState& around_;
  std::shared_ptr<CommunicatorState> local_;
  std::shared_ptr<CommunicatorState> across_;
};

}  // namespace unisono::detail
