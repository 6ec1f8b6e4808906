// Frames between the ranks of one host over rings in shared memory: no system call and no
// lock on the way, one ring per direction and pair. The memory comes from the caller
// (SharedSegment::ring) and must stay mapped as long as the transport lives.
//
// Thread rule: that of Transport. A rank that dies says nothing here; the arbiter finds it. A rank
// that closes, or whose transport is destroyed, leaves a goodbye in its rings.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transports/shm/message_ring.h"
#include "transports/transport.h"

namespace unisono::shm {

/// The memory of the ring from one world rank to another; one of them is this rank.
using OpenRing = std::function<Result<RingMemory>(Rank from, Rank to)>;

/// Where a rank has more links than kLinksPerTurn, a poll looks at the kBusyLinks where something
/// moved last before so many others each time.
inline constexpr std::size_t kLinksPerTurn = 16;
inline constexpr std::size_t kBusyLinks = 4;

class ShmTransport final : public Transport {
 public:
  /// `peers`: the world ranks of this host that `self` can reach, without `self`. Opens the rings
  /// that come in; those that go out are opened when endpoint() is first asked for.
  /// Without `loans` every frame goes through the ring.
  static Result<std::unique_ptr<Transport>> make(Rank self, std::vector<Rank> peers,
                                                 OpenRing open_ring,
                                                 std::unique_ptr<Loans> loans = nullptr);
  ~ShmTransport() override;

  std::string_view name() const override { return "shm"; }
  /// A grant costs two lines between cores, one after the other. What is longer may be lent
  /// instead.
  EndpointTraits traits() const override { return {.eager_bytes_max = 32 * 1024}; }
  std::string address() const override { return "shm"; }
  /// Nothing to learn: the rings were agreed on when the ranks of this host met.
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override;
  void give_up(Rank peer, FrameSink& sink) override;
  void close(TimePoint deadline, FrameSink& sink) override;

 private:
  class Link final : public Endpoint {
   public:
    Link(Rank self, Rank peer, const RingGeometry& incoming, OpenRing* open_ring,
         const Loans* loans, int* sending_links);
    std::size_t frame_bytes(const FrameHeader& header, std::span<const std::byte> rest) override;
    PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                         std::uint64_t token) override;
    void cancel(std::uint64_t token) override;
    void abandon(const std::byte* begin, std::size_t bytes) override;
    bool sends_unasked(std::span<const std::byte> payload) const override;
    TakeResult take_awaited(AwaitedMessage& awaited) override {
      return closed_ || failed_ ? TakeResult::kOther : receiver_.take_awaited(awaited);
    }
    bool poll(FrameSink& sink);
    void activate();
    /// A frame is partly written.
    bool sending() const { return !closed_ && sender_ && sender_->writing(); }
    void leave(RingLeft how);
    /// From here on everything goes through the ring, the rest of what was lent too.
    void end_lending();
    void return_pending(FrameSink& sink);
    void give_up(FrameSink& sink);

   private:
    MemoryHandle lend(const FrameHeader& header, std::span<const std::byte> payload);
    RingSender::Pushed push(const FrameHeader& header, std::span<const std::byte> payload);
    bool poll_send(FrameSink& sink);
    bool poll_receive(FrameSink& sink);
    void fail(Status cause);
    void shut(const Status& cause, FrameSink& sink);
    void count_sending();
    Status reader_gone(RingLeft how) const;
    Status nonsense() const;
    Status no_ring(const Status& why) const;
    Status no_copy() const;

    const Rank self_;
    const Rank peer_;
    bool closed_ = false;
    bool failed_ = false;   // closed() is to be reported when its turn comes
    bool pending_ = false;  // the payload of the frame partly written is the caller's
    std::uint64_t pending_token_ = 0;
    std::unique_ptr<PassedBuffers> buffers_;
    std::optional<RingSender> sender_;
    RingReceiver receiver_;
    OpenRing* open_ring_;
    const Loans* loans_;  // null: nothing is lent
    Status failure_;      // ok: a frame could not be copied
    int* sending_links_;  // of the transport; see count_sending()
    bool is_counted_ = false;
  };

  ShmTransport(Rank self, OpenRing open_ring, std::unique_ptr<Loans> loans)
      : self_(self),
        open_ring_(std::make_unique<OpenRing>(std::move(open_ring))),
        loans_(std::move(loans)) {}
  Status add_peer(Rank peer);
  bool poll_busy(FrameSink& sink);
  bool poll_next(FrameSink& sink);
  void leave_all(bool with_goodbye);

  Rank self_;
  std::unique_ptr<OpenRing> open_ring_;
  std::unique_ptr<Loans> loans_;
  std::vector<Link> links_;
  int sending_links_ = 0;
  std::vector<int> link_of_rank_;  // by world rank; -1: not on this host
  std::size_t next_ = 0;           // the link whose turn it is
  // Where something moved last; the latest first.
  std::array<std::size_t, kBusyLinks> busy_{0, 1, 2, 3};
  bool left_ = false;
};

}  // namespace unisono::shm
