// The reference transport: every post copies into a bounded queue, every poll takes from it.
// Owned by one rank; only LoopbackHub::Queue is shared, under its mutex.
#include "transports/loopback/loopback_transport.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/direct_memory.h"
#include "base/per_process.h"

namespace unisono {
namespace {

// So many frames of one peer are handed over before the next peer has its turn.
constexpr int kFramesPerPoll = 16;

// kDeliver is served in several pieces here as on any other transport, so that who relies on one
// piece per frame is found out on the reference.
constexpr std::size_t kPieceBytes = 16 * 1024;

Status cause_of(QueueEnd end, Rank peer) {
  if (end == QueueEnd::kGoodbye) return Status();
  return Status(ErrorCode::kRankFailed,
                "rank " + std::to_string(peer) + " ended without goodbye on its loopback queue",
                peer);
}

void hand_over(Rank peer, const FrameHeader& header, std::span<const std::byte> payload,
               FrameSink& sink) {
  const Placement placement = sink.place(peer, header);
  if (!payload.empty() && placement.kind == Placement::Kind::kInto) {
    UNISONO_ASSERT(placement.target != nullptr, "kInto needs a target");
    copy_bytes(placement.target, payload.data(), payload.size());
  } else if (placement.kind == Placement::Kind::kDeliver) {
    for (std::size_t offset = 0; offset < payload.size(); offset += kPieceBytes) {
      const std::size_t bytes = std::min(kPieceBytes, payload.size() - offset);
      sink.deliver(peer, header, offset, payload.subspan(offset, bytes));
    }
  }
  sink.received(peer, header);
}

struct Hubs {
  // Held here until every rank has come for it: a quick one may have sent and left before.
  struct Known {
    std::weak_ptr<LoopbackHub> hub;
    std::shared_ptr<LoopbackHub> until_all_came;
    int came = 0;
  };
  std::mutex mutex;
  std::map<std::pair<std::string, int>, Known> known;
};
constinit PerProcess<Hubs> hubs_of_process;

}  // namespace

LoopbackHub::LoopbackHub(int ranks) : ranks_(ranks) {
  UNISONO_ASSERT(ranks > 0, "a hub needs ranks");
  queues_.resize(static_cast<std::size_t>(ranks) * ranks);
  for (auto& queue : queues_) queue = std::make_unique<Queue>();
}

std::shared_ptr<LoopbackHub> LoopbackHub::of_job(const std::string& job_id, int ranks) {
  Hubs& hubs = hubs_of_process.get();
  const std::lock_guard lock(hubs.mutex);
  std::erase_if(hubs.known, [](const auto& entry) { return entry.second.hub.expired(); });
  Hubs::Known& known = hubs.known[{job_id, ranks}];
  std::shared_ptr<LoopbackHub> hub = known.hub.lock();
  if (!hub) known.hub = known.until_all_came = hub = std::make_shared<LoopbackHub>(ranks);
  if (++known.came >= ranks) known.until_all_came.reset();
  return hub;
}

LoopbackHub::Queue& LoopbackHub::queue(Rank from, Rank to) {
  return *queues_[static_cast<std::size_t>(from) * ranks_ + to];
}

PostResult LoopbackTransport::Link::post_send(const FrameHeader& header,
                                              std::span<const std::byte> payload, std::uint64_t) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kFramePayloadMax,
                 "a frame's header and payload must agree and keep the bound");
  if (closed_) return PostResult::kDone;
  const std::lock_guard lock(out_.mutex);
  if (out_.receiver_left) return PostResult::kDone;
  const bool full = out_.frames.size() >= LoopbackHub::kFramesMax ||
                    out_.bytes + payload.size() > LoopbackHub::kBytesMax;
  if (full && !out_.frames.empty()) return PostResult::kFull;
  LoopbackHub::Frame frame{header, std::vector<std::byte>(payload.size())};
  if (!payload.empty()) copy_bytes(frame.payload.data(), payload.data(), payload.size());
  out_.frames.push_back(std::move(frame));
  out_.bytes += payload.size();
  return PostResult::kDone;
}

std::optional<LoopbackHub::Frame> LoopbackTransport::Link::take_frame(QueueEnd* end) {
  const std::lock_guard lock(in_.mutex);
  if (in_.frames.empty()) {
    *end = in_.end;
    return std::nullopt;
  }
  LoopbackHub::Frame frame = std::move(in_.frames.front());
  in_.frames.pop_front();
  in_.bytes -= frame.payload.size();
  return frame;
}

bool LoopbackTransport::Link::poll(Rank peer, FrameSink& sink) {
  if (closed_) return false;
  for (int taken = 0; taken < kFramesPerPoll; ++taken) {
    QueueEnd end = QueueEnd::kOpen;
    // The lock is not held while the sink runs: it may post, to this very peer too.
    const std::optional<LoopbackHub::Frame> frame = take_frame(&end);
    if (frame) {
      hand_over(peer, frame->header, frame->payload, sink);
      continue;
    }
    if (end == QueueEnd::kOpen) return taken > 0;
    const Status cause = cause_of(end, peer);
    closed_ = true;
    sink.closed(peer, cause);
    return true;
  }
  return true;
}

void LoopbackTransport::Link::leave(QueueEnd end) {
  closed_ = true;
  {
    const std::lock_guard lock(out_.mutex);
    out_.end = end;
  }
  const std::lock_guard lock(in_.mutex);
  in_.receiver_left = true;
  in_.frames.clear();
  in_.bytes = 0;
}

LoopbackTransport::LoopbackTransport(std::shared_ptr<LoopbackHub> hub, Rank rank)
    : hub_(std::move(hub)), rank_(rank) {
  UNISONO_ASSERT(rank >= 0 && rank < hub_->ranks(), "the rank must be one of the hub's");
  links_.reserve(static_cast<std::size_t>(hub_->ranks()));
  for (Rank peer = 0; peer < hub_->ranks(); ++peer) {
    links_.emplace_back(hub_->queue(rank_, peer), hub_->queue(peer, rank_));
  }
}

LoopbackTransport::~LoopbackTransport() { leave_all(QueueEnd::kAbandoned); }

Status LoopbackTransport::set_peers(std::vector<std::string> addresses) {
  if (addresses.size() == links_.size()) return Status();
  return Status(ErrorCode::kInvalidArgument, "loopback: " + std::to_string(addresses.size()) +
                                                 " addresses for " + std::to_string(links_.size()) +
                                                 " ranks; give one per world rank");
}

Endpoint& LoopbackTransport::endpoint(Rank peer) {
  UNISONO_ASSERT(peer >= 0 && peer < hub_->ranks(), "the peer must be one of the hub's ranks");
  return links_[static_cast<std::size_t>(peer)];
}

bool LoopbackTransport::poll(FrameSink& sink) {
  bool moved = false;
  for (Rank peer = 0; peer < hub_->ranks(); ++peer) {
    moved |= links_[static_cast<std::size_t>(peer)].poll(peer, sink);
  }
  return moved;
}

// Everything posted is in the hub already and outlives this rank there, so nothing is waited for.
void LoopbackTransport::close(TimePoint, FrameSink&) { leave_all(QueueEnd::kGoodbye); }

void LoopbackTransport::leave_all(QueueEnd end) {
  if (std::exchange(left_, true)) return;
  for (Link& link : links_) link.leave(end);
}

}  // namespace unisono
