// The engine's side as a witness: takes every frame, compares its payload with what the sender must
// have written, and fails the test when a transport breaks a rule of FrameSink. One per rank, on
// the rank's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transports/transport.h"

namespace unisono::test {

/// Writes what payload_of() gives.
void fill_payload(std::span<std::byte> payload, Rank from, std::uint64_t sequence);

class Recorder final : public FrameSink {
 public:
  /// Where the payload of each frame is to go; kInto unless set.
  std::function<Placement::Kind(const FrameHeader&)> choose_placement;
  /// After each frame; it may post.
  std::function<void(Rank, const FrameHeader&)> on_received;

  /// Around every post_send: no call of the sink may come from within it.
  void enter_post() { ++posts_running_; }
  void leave_post() { --posts_running_; }
  void expect_token(Rank peer, std::uint64_t token) { outstanding_[peer].insert(token); }
  /// After cancel(): sent() for it would be an error.
  void forget_token(Rank peer, std::uint64_t token) { outstanding_[peer].erase(token); }

  std::uint64_t count(Rank peer) const;
  const std::vector<FrameHeader>& frames(Rank peer) { return arrived_[peer]; }
  std::size_t tokens_outstanding() const;
  std::size_t tokens_outstanding(Rank peer) const;
  bool is_outstanding(Rank peer, std::uint64_t token) const;
  std::uint64_t tokens_returned() const { return tokens_returned_; }
  /// The cause given to closed(), or nothing yet.
  std::optional<Status> closed_cause(Rank peer) const;
  /// The memory of a frame that has been placed and not been received yet.
  std::span<std::byte> memory_in_use(Rank peer);
  /// Its content is not compared any more.
  void expect_abandoned(Rank peer);
  /// The payload of the frame received last.
  std::span<const std::byte> last_memory() const { return last_memory_; }
  std::uint64_t pieces() const { return pieces_; }

  Placement place(Rank peer, const FrameHeader& header) override;
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override;
  void received(Rank peer, const FrameHeader& header) override;
  void sent(Rank peer, std::uint64_t token) override;
  void closed(Rank peer, const Status& cause) override;

 private:
  struct Arriving {
    FrameHeader header;
    Placement::Kind kind = Placement::Kind::kDiscard;
    std::vector<std::byte> memory;
    std::size_t delivered = 0;
    bool abandoned = false;
  };

  void check_call(Rank peer, const char* call);
  Arriving* find(Rank peer, const FrameHeader& header, const char* call);

  std::map<Rank, std::vector<Arriving>> arriving_;
  std::map<Rank, std::vector<FrameHeader>> arrived_;
  std::map<Rank, std::uint64_t> next_sequence_;
  std::map<Rank, std::set<std::uint64_t>> sequences_;
  std::map<Rank, std::set<std::uint64_t>> outstanding_;
  std::map<Rank, Status> closed_;
  std::vector<std::byte> last_memory_;
  std::uint64_t tokens_returned_ = 0;
  std::uint64_t pieces_ = 0;
  int posts_running_ = 0;
};

}  // namespace unisono::test
