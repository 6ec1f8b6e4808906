// Faults around another transport. Every frame is copied when posted, so that a connection may
// drop at any moment without leaving the caller's payload referenced below.
#include "tests/transport/faulty_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <utility>

namespace unisono {
namespace {

// Frames of one peer held here at most; then post_send answers kFull.
constexpr std::size_t kHeldMax = 32;

}  // namespace

class FaultyTransport::Link final : public Endpoint {
 public:
  Link(FaultyTransport& owner, Rank peer)
      : owner_(owner),
        peer_(peer),
        random_(owner.options_.seed * 1000003 + static_cast<std::uint64_t>(peer)) {}

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override;
  void cancel(std::uint64_t token) override;
  void abandon(const std::byte* begin, std::size_t bytes) override;

  /// The inner endpoint is made when this one is asked for, as it would be without decorator.
  void activate() {
    if (inner_ == nullptr) inner_ = &owner_.inner_->endpoint(peer_);
  }
  bool holds_frames() const { return passing() && !held_.empty(); }
  bool flush(FrameSink& sink);
  bool report_drop(FrameSink& sink);
  void return_tokens(FrameSink& sink);

  Placement place(const FrameHeader& header, FrameSink& sink);
  void deliver(const FrameHeader& header, std::size_t offset, std::span<const std::byte> piece,
               FrameSink& sink);
  void received(const FrameHeader& header, FrameSink& sink);
  void sent(std::uint64_t serial) { lent_.erase(serial); }
  void closed(const Status& cause, FrameSink& sink);

 private:
  struct Held {
    FrameHeader header;
    std::vector<std::byte> payload;
    std::uint64_t token = 0;
    std::uint64_t serial = 0;
    std::uint64_t leaves_at_poll = 0;
    bool pending = false;
  };

  /// A frame that arrives into memory of the caller; several streams may bring several at once.
  struct Arriving {
    FrameHeader header;
    std::byte* target = nullptr;
  };

  bool passing() const { return !closed_ && drop_reason_.empty() && !owner_.left_; }
  bool one_in(unsigned n) { return n > 0 && random_() % n == 0; }
  bool storm_refuses();
  bool may_leave(const Held& frame) const;
  void drop(const std::string& reason);

  FaultyTransport& owner_;
  const Rank peer_;
  std::mt19937_64 random_;
  Endpoint* inner_ = nullptr;
  bool closed_ = false;
  std::string drop_reason_;  // not empty: the connection has dropped

  std::deque<Held> held_;                                 // not yet taken by the inner endpoint
  std::map<std::uint64_t, std::vector<std::byte>> lent_;  // by serial: it references these
  unsigned storm_left_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t stalled_until_poll_ = 0;

  std::uint64_t arrived_ = 0;
  std::vector<Arriving> receiving_;
  bool truncating_ = false;
  Placement truncated_;  // where the frame being truncated goes
};

class FaultyTransport::FilteringSink final : public FrameSink {
 public:
  FilteringSink(FaultyTransport& owner, FrameSink& sink) : owner_(owner), sink_(sink) {}
  Placement place(Rank peer, const FrameHeader& header) override {
    return owner_.link(peer).place(header, sink_);
  }
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override {
    owner_.link(peer).deliver(header, offset, piece, sink_);
  }
  void received(Rank peer, const FrameHeader& header) override {
    owner_.link(peer).received(header, sink_);
  }
  void sent(Rank peer, std::uint64_t serial) override { owner_.link(peer).sent(serial); }
  void closed(Rank peer, const Status& cause) override { owner_.link(peer).closed(cause, sink_); }

 private:
  FaultyTransport& owner_;
  FrameSink& sink_;
};

bool FaultyTransport::Link::storm_refuses() {
  if (storm_left_ == 0 && one_in(owner_.options_.full_one_in)) {
    storm_left_ = owner_.options_.full_storm_posts;
  }
  if (storm_left_ == 0) return false;
  --storm_left_;
  return true;
}

PostResult FaultyTransport::Link::post_send(const FrameHeader& header,
                                            std::span<const std::byte> payload,
                                            std::uint64_t token) {
  if (!passing()) return PostResult::kDone;
  if (held_.size() >= kHeldMax || storm_refuses()) return PostResult::kFull;
  const FaultOptions& options = owner_.options_;
  const std::uint64_t serial = posted_++;
  if (owner_.is_target(peer_) && serial == options.drop_at_frame) {
    drop("was dropped at frame " + std::to_string(serial));
    return PostResult::kDone;
  }
  if (owner_.is_target(peer_) && serial == options.stall_at_frame) {
    stalled_until_poll_ = owner_.polls_ + options.stall_polls;
  }
  Held frame{header, {payload.begin(), payload.end()}, token, serial, owner_.polls_, false};
  if (options.delay_polls_max > 0) {
    frame.leaves_at_poll += random_() % (std::uint64_t{options.delay_polls_max} + 1);
  }
  frame.pending = one_in(options.pending_one_in);
  held_.push_back(std::move(frame));
  return held_.back().pending ? PostResult::kPending : PostResult::kDone;
}

// A frame that has left was copied, so only those that wait here are looked for.
void FaultyTransport::Link::cancel(std::uint64_t token) {
  std::erase_if(held_,
                [token](const Held& frame) { return frame.pending && frame.token == token; });
}

void FaultyTransport::Link::abandon(const std::byte* begin, std::size_t bytes) {
  const std::less<> before;
  if (truncated_.kind == Placement::Kind::kInto && !before(truncated_.target, begin) &&
      before(truncated_.target, begin + bytes)) {
    truncated_ = {};
  }
  activate();
  inner_->abandon(begin, bytes);
}

bool FaultyTransport::Link::may_leave(const Held& frame) const {
  if (owner_.hurrying_) return true;
  return frame.leaves_at_poll <= owner_.polls_ && stalled_until_poll_ <= owner_.polls_;
}

bool FaultyTransport::Link::flush(FrameSink& sink) {
  bool moved = false;
  while (holds_frames() && may_leave(held_.front())) {
    Held& frame = held_.front();
    const PostResult result = inner_->post_send(frame.header, frame.payload, frame.serial);
    if (result == PostResult::kFull) break;
    // The bytes stay where they are when their vector moves.
    if (result == PostResult::kPending) lent_[frame.serial] = std::move(frame.payload);
    const Held gone = std::move(frame);
    held_.pop_front();
    if (gone.pending) sink.sent(peer_, gone.token);
    moved = true;
  }
  return moved;
}

void FaultyTransport::Link::drop(const std::string& reason) {
  drop_reason_ = reason;
  activate();
  for (const Arriving& frame : receiving_) {
    inner_->abandon(frame.target, frame.header.payload_bytes);
  }
  receiving_.clear();
}

bool FaultyTransport::Link::report_drop(FrameSink& sink) {
  if (closed_ || drop_reason_.empty()) return false;
  closed_ = true;
  return_tokens(sink);
  sink.closed(peer_, Status(ErrorCode::kRankFailed,
                            "the connection to rank " + std::to_string(peer_) + " " + drop_reason_ +
                                " by a fault that was asked for",
                            peer_));
  return true;
}

void FaultyTransport::Link::return_tokens(FrameSink& sink) {
  for (const Held& frame : std::exchange(held_, {})) {
    if (frame.pending) sink.sent(peer_, frame.token);
  }
}

Placement FaultyTransport::Link::place(const FrameHeader& header, FrameSink& sink) {
  if (!passing()) return {};
  const bool truncate = owner_.is_target(peer_) && arrived_++ == owner_.options_.truncate_at_frame;
  const Placement placement = sink.place(peer_, header);
  if (truncate) {
    truncating_ = true;
    truncated_ = placement;
    return {Placement::Kind::kDeliver, nullptr};
  }
  if (placement.kind == Placement::Kind::kInto && header.payload_bytes > 0) {
    receiving_.push_back({header, placement.target});
  }
  return placement;
}

void FaultyTransport::Link::deliver(const FrameHeader& header, std::size_t offset,
                                    std::span<const std::byte> piece, FrameSink& sink) {
  if (!passing()) return;
  if (!truncating_) return sink.deliver(peer_, header, offset, piece);
  const std::size_t half = header.payload_bytes / 2;
  if (offset >= half) return;
  piece = piece.first(std::min(piece.size(), half - offset));
  if (truncated_.kind == Placement::Kind::kInto) {
    std::memcpy(truncated_.target + offset, piece.data(), piece.size());
  } else if (truncated_.kind == Placement::Kind::kDeliver) {
    sink.deliver(peer_, header, offset, piece);
  }
}

void FaultyTransport::Link::received(const FrameHeader& header, FrameSink& sink) {
  if (!passing()) return;
  if (truncating_) return drop("broke off in the middle of a frame");
  const auto found = std::find_if(receiving_.begin(), receiving_.end(), [&](const Arriving& frame) {
    return std::memcmp(&frame.header, &header, sizeof header) == 0;
  });
  if (found != receiving_.end()) receiving_.erase(found);
  sink.received(peer_, header);
}

void FaultyTransport::Link::closed(const Status& cause, FrameSink& sink) {
  if (!passing()) return;
  closed_ = true;
  return_tokens(sink);
  sink.closed(peer_, cause);
}

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, FaultOptions options)
    : inner_(std::move(inner)),
      options_(options),
      name_("faulty(" + std::string(inner_->name()) + ")") {}

// The inner transport goes first: it may reference the copies that the links hold.
FaultyTransport::~FaultyTransport() { inner_.reset(); }

EndpointTraits FaultyTransport::with_faults(EndpointTraits traits) const {
  traits.captures_sends = options_.pending_one_in == 0;
  return traits;
}

FaultyTransport::Link& FaultyTransport::link(Rank peer) {
  std::unique_ptr<Link>& found = links_[peer];
  if (!found) found = std::make_unique<Link>(*this, peer);
  return *found;
}

Endpoint& FaultyTransport::endpoint(Rank peer) {
  Link& found = link(peer);
  found.activate();
  return found;
}

bool FaultyTransport::poll(FrameSink& sink) {
  if (left_) return false;
  ++polls_;
  bool moved = false;
  for (auto& [peer, link] : links_) moved |= link->flush(sink);
  FilteringSink filtering(*this, sink);
  moved |= inner_->poll(filtering);
  for (auto& [peer, link] : links_) moved |= link->report_drop(sink);
  return moved;
}

void FaultyTransport::close(TimePoint deadline, FrameSink& sink) {
  if (std::exchange(hurrying_, true)) return;
  const auto holds_frames = [this] {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& entry) { return entry.second->holds_frames(); });
  };
  while (holds_frames() && Clock::now() < deadline) {
    if (!poll(sink)) std::this_thread::yield();
  }
  FilteringSink filtering(*this, sink);
  inner_->close(deadline, filtering);
  left_ = true;
  for (auto& [peer, link] : links_) link->return_tokens(sink);
}

}  // namespace unisono
