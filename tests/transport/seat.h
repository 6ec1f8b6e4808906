// One rank of a conformance case: its transport, its witness, and the buffers it has lent. The body
// of a case runs once per rank with a Seat, on a thread or in a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/shared_world.h"
#include "tests/transport/recorder.h"
#include "transports/transport.h"

namespace unisono::test {

class Seat {
 public:
  Seat(std::unique_ptr<Transport> transport, SharedWorld& world, Rank rank)
      : transport_(std::move(transport)), world_(world), rank_(rank) {}

  Rank rank() const { return rank_; }
  int size() const { return world_.ranks(); }
  Transport& transport() { return *transport_; }
  Recorder& recorder() { return recorder_; }

  struct Message {
    std::size_t bytes = 0;
    FrameKind kind = FrameKind::kEager;
    FrameClass frame_class = FrameClass::kCollective;
    std::uint32_t index = 0;
  };
  /// Posts the next frame of this rank to `peer` once. The buffer is spoilt when the transport
  /// says that it is the caller's again, so that a late read shows.
  PostResult try_send(Rank peer, const Message& message);
  /// Posts until taken, polling meanwhile.
  bool send(Rank peer, const Message& message);
  /// Posts until kFull without polling; the number taken. Fails the test at 256 MiB.
  std::uint64_t send_until_full(Rank peer, const Message& message);
  /// Frames posted to `peer` so far.
  std::uint64_t posted(Rank peer) const;
  /// Cancels every outstanding token to `peer` and spoils the buffers at once; how many.
  std::uint64_t cancel_all(Rank peer);

  bool poll();
  /// Polls until `done`, or fails the test after 20 s.
  bool poll_until(const std::function<bool()>& done, const char* what);
  bool await(Rank peer, std::uint64_t frames);
  bool await_tokens();
  /// All ranks are here. The first lets this rank sleep, the second lets it poll meanwhile.
  bool barrier();
  bool barrier_polling();
  /// A number for the other ranks, who may ask for it after the next barrier.
  void tell(std::uint64_t number) { world_.set_text(rank_, std::to_string(number)); }
  std::uint64_t told_by(Rank rank) const {
    return std::stoull(world_.texts()[static_cast<std::size_t>(rank)]);
  }
  /// One frame to and from every other rank, so that connections stand.
  bool greet_everyone();
  /// Meets everyone, closes, and checks that nothing is lent any more.
  void finish();
  void close(Duration within = std::chrono::seconds(10));
  void destroy_transport() { transport_.reset(); }
  bool has_unsent() const { return transport_->has_unsent(); }
  void give_up(Rank peer) { transport_->give_up(peer, recorder_); }

 private:
  void free_returned();

  std::unique_ptr<Transport> transport_;
  SharedWorld& world_;
  Rank rank_;
  Recorder recorder_;
  struct Lent {
    Rank peer;
    std::vector<std::byte> buffer;
  };
  std::map<std::uint64_t, Lent> lent_;
  std::map<Rank, std::uint64_t> next_sequence_;
  std::uint64_t next_token_ = 1;
};

}  // namespace unisono::test
