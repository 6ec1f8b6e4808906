// How the ranks of one host find each other: rank index 0 accepts on its abstract UNIX socket, the
// others connect; each side checks the other's user id; descriptors travel as ancillary data.
//
// Thread rule: one thread. Only used inside SharedSegment::open.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transports/shm/descriptor_message.h"
#include "transports/shm/segment.h"
#include "transports/shm/shared_segment.h"

namespace unisono::shm {

class DescriptorExchange {
 public:
  DescriptorExchange(const LocalPeers& peers, TimePoint deadline)
      : peers_(peers), deadline_(deadline) {}

  /// The leader waits for everyone, and the others connect; each brings the descriptor of its heap.
  Status gather(LocalListener& listener, int own_heap);
  /// Leader: sends `own_segment` and all heaps to everyone. The others: receive them. Afterwards
  /// heaps() has one descriptor for each rank.
  Status share(int own_segment, UniqueFd* received_segment);
  /// Returns when every rank has called it.
  Status barrier();
  /// Tells the others that have connected why there can be no shared segment: what this rank
  /// lacks, or what another one that `cause` names.
  void refuse(const Status& cause);
  /// Instead of gather(), by a rank that cannot take part: the leader and so all others are told.
  void decline(const Status& cause);

  const std::vector<PeerMemfd>& heaps() const { return heaps_; }

 private:
  bool leads() const { return peers_.self == 0; }
  int size() const { return static_cast<int>(peers_.world_ranks.size()); }
  Status accept_all(LocalListener& listener);
  /// False at `until`; an error is the watch's word. What can be read then has come before it.
  Result<bool> await(int fd, TimePoint until) const;
  Status ask_watch() const;
  Status await_connection(LocalListener& listener) const;
  Status accept_hello(UniqueFd connection);
  Status connect_to_leader();
  Status say_hello(int own_heap);
  Status send_all(int own_segment);
  Status receive_all(UniqueFd* segment);
  Result<std::size_t> receive_some(std::size_t known, UniqueFd* segment);
  Status say(int to, const Message& message, std::span<const int> descriptors);
  Result<Message> expect(int from, MessageKind kind, std::vector<UniqueFd>* descriptors);
  Status refusal(int from, const Message& told) const;
  Rank world_rank(int index) const { return peers_.world_ranks[static_cast<std::size_t>(index)]; }
  Status missing(const char* what) const;

  const LocalPeers& peers_;
  TimePoint deadline_;
  std::vector<UniqueFd> links_;  // leader: one per rank; others: the leader's at index 0
  std::vector<PeerMemfd> heaps_;
  std::vector<bool> waiting_for_;
  Status declined_;  // what a rank gave as its reason not to take part
};

}  // namespace unisono::shm
