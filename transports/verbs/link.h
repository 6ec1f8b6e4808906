// Everything between this rank and one peer: hello and epochs, what goes out and comes in, how it
// ends. Owned by VerbsTransport, used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transports/transport.h"
#include "transports/verbs/incoming.h"
#include "transports/verbs/outgoing.h"
#include "transports/verbs/queue_pairs.h"
#include "transports/verbs/side_channel.h"

namespace unisono::verbs {

/// Why a link ends where there is no memory for other words. It takes none: it fits into a string.
inline constexpr const char* kNoMemory = "no memory";

enum class LinkState : std::uint8_t {
  kIdle,        ///< nobody has asked for it
  kExchanging,  ///< this rank's hello of the epoch is out; frames queue
  kStanding,    ///< both sides are ready
  kEnded,       ///< reported closed, or left
};

class Link final : public Endpoint {
 public:
  /// Registers the rings; a link that cannot have them ends with the next poll and says why.
  static std::unique_ptr<Link> make(Rank self, Rank peer, const LinkResources& shared,
                                    QueuePairDirectory& directory, SideChannel& side);
  /// A peer without verbs: frames go over the side channel.
  static std::unique_ptr<Link> make_stream(Rank self, Rank peer, const LinkResources& shared,
                                           QueuePairDirectory& directory, SideChannel& side);
  ~Link() override;

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override;
  void cancel(std::uint64_t token) override;
  void abandon(const std::byte* begin, std::size_t bytes) override;

  Rank peer() const { return peer_; }
  bool is_stream() const { return stream_ != nullptr; }
  /// Something is being waited for that only the side channel can bring.
  bool needs_side_channel() const { return is_stream() || state_ == LinkState::kExchanging; }

  /// From the transport, while it polls.
  void wanted();
  void message(std::string_view bytes);
  void side_closed(const Status& cause);
  /// Nothing: a message arrived that was no write with an immediate. Throws nothing.
  void immediate(std::optional<std::uint32_t> bits);
  /// Keeps it for handle_broken(). Takes no memory.
  void broken(const QueuePair& queue_pair, ibv_wc_status status);
  bool is_broken() const { return broken_.has_value(); }
  /// Where it throws it is still broken, the next epoch is due, or the link ends.
  void handle_broken();
  /// Throws nothing: where memory is lacking the next epoch is due.
  void rail_failed(std::size_t rail);
  /// This rank lacked memory for what the peer said, which is lost. Throws nothing.
  void no_memory();
  bool progress(FrameSink& sink);

  bool has_unsent() const;
  /// Nothing of this rank is on its way to the peer any more.
  bool is_settled();
  /// Tells the peer that this rank goes, and whether everything got there.
  void leave();
  /// Ends the link without a report, payloads handed back: this rank has left.
  void drop(FrameSink& sink);

 private:
  Link(Rank self, Rank peer, const LinkResources& shared, QueuePairDirectory& directory,
       SideChannel& side);
  Status make_rings();
  /// The queue pairs go, and the next epoch is due. Takes no memory.
  void interrupt();
  /// Does `work`. Where memory is lacking nobody knows how far it came: the next epoch is due.
  template <typename Work>
  void or_interrupt(const Work& work);
  /// Throws nothing: where memory is lacking a later poll begins it, and throws if it still is.
  void begin_due_epoch();
  void begin_epoch(std::uint32_t epoch);
  Status check_sums(const Hello& hello) const;
  void on_hello(const Hello& hello);
  void connect();
  void on_ready(std::uint32_t epoch);
  void on_leaving(std::uint64_t position);
  Hello make_hello() const;
  /// A fence; see QueuePairs::close(). What a peer that has left had written can be seen
  /// afterwards.
  void close_queue_pairs();
  Status take(const Immediate& immediate);
  void give_up(Status cause);
  bool has_failed() const { return closing_ && !cause_; }
  void lift_bans();
  bool end_if_due(FrameSink& sink);
  Status why_incomplete();
  void post_staged();
  /// `code`: of the end where no other port is left.
  void lose(std::size_t rail, ErrorCode code, const std::string& what);
  void send_now();

  const Rank self_;
  const Rank peer_;
  const LinkResources& shared_;
  SideChannel& side_;
  Endpoint* stream_ = nullptr;
  LinkState state_ = LinkState::kIdle;
  std::uint32_t epoch_ = 0;
  bool epoch_due_ = false;    ///< it has not begun wholly: the peer has heard nothing of it
  bool met_ = false;          ///< the peer's hello of this epoch is here
  bool peer_ready_ = false;   ///< the peer's stand too
  std::vector<bool> banned_;  ///< rails that failed this link, until data flows again
  bool has_bans_ = false;
  std::unique_ptr<Outgoing> outgoing_;
  std::unique_ptr<Incoming> incoming_;
  QueuePairs queue_pairs_;
  std::uint64_t marker_ = 0;  ///< leaving: the request whose completion ends all before it
  std::uint64_t marked_ = 0;  ///< the end of the records before the marker
  bool peer_left_ = false;    ///< it said so; `last_position_` is the end of its records
  std::uint64_t last_position_ = 0;
  /// After goodbye: how long the device may take to bring what is not here.
  std::optional<TimePoint> last_words_until_;
  bool looks_last_ = false;  ///< that is over, and the next poll looks for the last time
  bool closing_ = false;     ///< `cause_` is to be reported when what has come was handed over
  Status cause_;
  struct Broken {
    std::size_t rail;
    ibv_wc_status status;
  };
  /// The first bad completion of this epoch says why; others only that they were flushed.
  std::optional<Broken> broken_;
};

}  // namespace unisono::verbs
