// Ranks in one process: the reference transport. It reads as the specification of the contract in
// transports/transport.h; where another transport behaves differently, that one is wrong.
//
// LoopbackHub is shared by the ranks and safe from any thread: one mutex per queue. Each
// LoopbackTransport belongs to its rank's engine and follows the thread rule of Transport.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

/// What a rank has said about the end of one of its queues.
enum class QueueEnd : std::uint8_t { kOpen, kGoodbye, kAbandoned };

/// The queues between all ranks of one job in one process.
class LoopbackHub {
 public:
  /// A queue holds so many frames and payload bytes, then post_send answers kFull. A frame larger
  /// than the second bound still fits an empty queue.
  static constexpr std::size_t kFramesMax = 256;
  static constexpr std::size_t kBytesMax = 1024 * 1024;

  explicit LoopbackHub(int ranks);

  /// The hub that all ranks of a job in this process share; each of them asks once. It lives until
  /// all have come and gone. Safe from any thread.
  static std::shared_ptr<LoopbackHub> of_job(const std::string& job_id, int ranks);

  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
  };

  /// From one rank to another. `mutex` is held for all of it.
  struct Queue {
    std::mutex mutex;
    std::deque<Frame> frames;
    std::size_t bytes = 0;
    QueueEnd end = QueueEnd::kOpen;
    bool receiver_left = false;
  };

  int ranks() const { return ranks_; }
  Queue& queue(Rank from, Rank to);

 private:
  int ranks_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

/// One rank's end of a hub. A rank may also send to itself.
class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackHub> hub, Rank rank);
  /// Without close() before, peers are told that this rank ended without goodbye.
  ~LoopbackTransport() override;

  std::string_view name() const override { return "loopback"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return "loopback"; }
  Status set_peers(std::vector<std::string> addresses) override;
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  /// The reference for this, too: it copies what others register.
  Status admits_direct(Rank, std::size_t) const override { return Status(); }
  bool has_unsent() const override { return false; }
  void close(TimePoint deadline, FrameSink& sink) override;

 private:
  /// One peer: the queue to it and the queue from it.
  class Link final : public Endpoint {
   public:
    Link(LoopbackHub::Queue& out, LoopbackHub::Queue& in) : out_(out), in_(in) {}
    PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                         std::uint64_t token) override;
    /// Posts are captured and frames handed over whole: nothing is ever lent or half received.
    void cancel(std::uint64_t) override {}
    void abandon(const std::byte*, std::size_t) override {}
    bool poll(Rank peer, FrameSink& sink);
    void leave(QueueEnd end);

   private:
    std::optional<LoopbackHub::Frame> take_frame(QueueEnd* end);

    LoopbackHub::Queue& out_;
    LoopbackHub::Queue& in_;
    bool closed_ = false;
  };

  void leave_all(QueueEnd end);

  std::shared_ptr<LoopbackHub> hub_;
  Rank rank_;
  std::vector<Link> links_;
  bool left_ = false;
};

}  // namespace unisono
