#include "tests/sim/fabric.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A payload is handed over in pieces of this at most, as loopback does.
constexpr std::size_t kPieceBytes = 16 * 1024;
constexpr std::size_t kLineBytes = 64;
// Frames of one stream that have been posted and are not written yet; then posts are refused.
constexpr std::size_t kPostsMax = 4;
// How long after a link broke an end may notice.
constexpr Duration kNoticed = milliseconds(40);
constexpr Duration kSoon = microseconds(20);

std::uint64_t key_of(Rank from, Rank to) {
  return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
}

}  // namespace

Fabric::Fabric(const Network& network, int ranks, std::uint64_t seed, Schedule& schedule,
               std::function<void(Rank)> wake, std::function<TimePoint(Rank, Rank)> passes_at)
    : network_(network),
      ranks_(ranks),
      random_(seed),
      schedule_(schedule),
      wake_(std::move(wake)),
      passes_at_(std::move(passes_at)),
      isolated_(static_cast<std::size_t>(ranks), false),
      gone_(static_cast<std::size_t>(ranks), false) {
  for (Rank rank = 0; rank < ranks; ++rank) {
    transports_.push_back(std::make_unique<SimulatedTransport>(*this, rank));
  }
}

Fabric::~Fabric() = default;

SimulatedTransport& Fabric::transport(Rank rank) {
  return *transports_[static_cast<std::size_t>(rank)];
}

Fabric::Way& Fabric::way(Rank from, Rank to) {
  const auto [found, is_new] = ways_.try_emplace(key_of(from, to));
  if (is_new) found->second.streams.resize(static_cast<std::size_t>(network_.streams));
  return found->second;
}

Duration Fabric::delay() {
  if (random_.one_in(network_.late_one_in)) return random_.up_to(network_.late);
  return network_.delay_min + random_.up_to(network_.delay_max - network_.delay_min);
}

bool Fabric::has_room(const Stream& stream, std::size_t bytes) const {
  if (stream.frames.empty()) return true;
  return stream.frames.size() < network_.frames_max && stream.bytes + bytes <= network_.bytes_max;
}

void Fabric::transmit(Rank from, Rank to, std::size_t stream, Frame frame) {
  Way& along = way(from, to);
  if (along.takes_nothing) return;
  const TimePoint passes = passes_at_(from, to);
  // The first word on a link that was made before the network went down.
  if (passes == kNever) return cut(from, to, network_.unacknowledged);
  Stream& in = along.streams[stream];
  const TimePoint sent = std::max(schedule_.now(), passes);
  frame.arrives = in.last_arrival = std::max(in.last_arrival, sent + delay());
  in.bytes += frame.payload.size();
  in.frames.push_back(std::move(frame));
  announce(to, from, in.last_arrival);
}

void Fabric::announce(Rank at, Rank peer, TimePoint when) {
  schedule_.at(when, [this, at, peer] {
    if (gone_[static_cast<std::size_t>(at)]) return;
    transport(at).mark(peer);
    wake_(at);
  });
}

void Fabric::end_way(Rank from, Rank to, End end, TimePoint when) {
  Way& along = way(from, to);
  along.end = end;
  along.ends = when;
  announce(to, from, when);
}

void Fabric::break_way(Rank from, Rank to, Duration notice_min) {
  Way& along = way(from, to);
  const bool has_ended = along.end != End::kOpen && along.ends <= schedule_.now();
  along.takes_nothing = true;
  for (Stream& stream : along.streams) {
    const auto lost = std::find_if(stream.frames.begin(), stream.frames.end(),
                                   [&](const Frame& f) { return f.arrives > schedule_.now(); });
    if (lost == stream.frames.end()) continue;
    const bool is_torn = random_.one_in(2) && !lost->payload.empty();
    stream.frames.erase(is_torn ? lost + 1 : lost, stream.frames.end());
    if (!is_torn) continue;
    Frame& torn = stream.frames.back();
    torn.arrives = schedule_.now();
    torn.is_torn = true;
    torn.payload.resize(random_.below(torn.payload.size()) / kLineBytes * kLineBytes);
  }
  if (has_ended) return;
  end_way(from, to, End::kBroken, schedule_.now() + notice_min + random_.up_to(kNoticed));
}

void Fabric::cut(Rank a, Rank b, Duration notice_min) {
  break_way(a, b, notice_min);
  break_way(b, a, notice_min);
}

void Fabric::part(const std::function<bool(Rank, Rank)>& apart) {
  for (Rank a = 0; a < ranks_; ++a) {
    for (Rank b = 0; b < a; ++b) {
      const bool is_made = ways_.contains(key_of(a, b)) || ways_.contains(key_of(b, a));
      if (is_made && apart(a, b)) cut(a, b, network_.unacknowledged);
    }
  }
}

void Fabric::hold_up() {
  for (auto& [key, along] : ways_) {
    const auto from = static_cast<Rank>(key >> 32), to = static_cast<Rank>(key & 0xffffffff);
    const TimePoint passes = passes_at_(from, to);
    if (passes == kNever || passes <= schedule_.now()) continue;
    const auto hold = [&, to = to, from = from](TimePoint* when) {
      if (*when <= schedule_.now() || *when >= passes) return;
      *when = passes;
      announce(to, from, passes);
    };
    for (Stream& stream : along.streams) {
      for (Frame& frame : stream.frames) hold(&frame.arrives);
      hold(&stream.last_arrival);
    }
    if (along.end != End::kOpen) hold(&along.ends);
  }
}

void Fabric::refuse(Rank from, Rank at) { cut(from, at, heard_after(at, from)); }

Duration Fabric::heard_after(Rank from, Rank to) {
  const TimePoint passes = passes_at_(from, to);
  return passes == kNever ? network_.unacknowledged
                          : std::max(passes - schedule_.now(), Duration::zero());
}

int Fabric::isolate(Rank rank) {
  isolated_[static_cast<std::size_t>(rank)] = true;
  int links = 0;
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank) continue;
    if (!ways_.contains(key_of(rank, peer)) && !ways_.contains(key_of(peer, rank))) continue;
    ++links;
    cut(rank, peer, heard_after(rank, peer));
  }
  return links;
}

void Fabric::end_process(Rank dead) {
  gone_[static_cast<std::size_t>(dead)] = true;
  isolate(dead);
}

// ---- One rank's end of one link -----------------------------------------------------------------

class SimulatedTransport::Link final : public Endpoint {
 public:
  Link(SimulatedTransport& transport, Rank peer)
      : transport_(transport),
        fabric_(transport.fabric_),
        rank_(transport.rank_),
        peer_(peer),
        lanes_(static_cast<std::size_t>(fabric_.network_.streams)) {}

  std::size_t frame_bytes(const FrameHeader& header, std::span<const std::byte> rest) override;
  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override;
  void cancel(std::uint64_t token) override;
  void abandon(const std::byte* begin, std::size_t bytes) override;

  bool poll(FrameSink& sink);
  void give_up(FrameSink& sink);
  void leave(FrameSink& sink);
  bool has_unsent() const {
    return std::any_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return !lane.posts.empty(); });
  }
  std::size_t lent() const {
    std::size_t lent = 0;
    for (const Lane& lane : lanes_) {
      lent += static_cast<std::size_t>(std::count_if(
          lane.posts.begin(), lane.posts.end(), [](const Post& post) { return post.is_lent; }));
    }
    return lent;
  }

  bool marked = false;

 private:
  /// Posted, and not written yet.
  struct Post {
    Fabric::Frame frame;                // what is written of it so far, or captured
    std::span<const std::byte> rest{};  // lent
    std::uint64_t token = 0;
    bool is_lent = false;

    bool has_begun() const { return !frame.payload.empty(); }
    void take(std::size_t bytes) {
      const auto part = rest.first(bytes);
      frame.payload.insert(frame.payload.end(), part.begin(), part.end());
      rest = rest.subspan(bytes);
    }
  };
  /// What both ways of a stream have at this end.
  struct Lane {
    std::deque<Post> posts;
    bool receives = false;  // `arriving` is placed
    Fabric::Frame arriving;
    Placement placement;
    std::size_t done = 0;
  };

  std::size_t lane_for(const FrameHeader& header) {
    if (header.kind != FrameKind::kData) return 0;
    return fabric_.random_.below(lanes_.size());
  }
  bool write(std::size_t at, FrameSink& sink);
  bool receive(std::size_t at, FrameSink& sink);
  bool hand_over(Lane& lane, FrameSink& sink);
  void return_lent(FrameSink& sink);
  bool end_if_over(FrameSink& sink);

  SimulatedTransport& transport_;
  Fabric& fabric_;
  const Rank rank_, peer_;
  std::vector<Lane> lanes_;
  bool closed_ = false;
};

// One piece or several, as endpoints that lend ask for.
std::size_t SimulatedTransport::Link::frame_bytes(const FrameHeader&,
                                                  std::span<const std::byte> rest) {
  const std::size_t pieces = 1 + fabric_.random_.below(kLentPayloadMax / kFramePayloadMax);
  return std::min(rest.size(), pieces * kFramePayloadMax);
}

PostResult SimulatedTransport::Link::post_send(const FrameHeader& header,
                                               std::span<const std::byte> payload,
                                               std::uint64_t token) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kLentPayloadMax,
                 "a frame's header and payload must agree and keep the bound");
  if (closed_) return PostResult::kDone;
  const Network& network = fabric_.network_;
  const std::size_t at = lane_for(header);
  Lane& lane = lanes_[at];
  const bool refuses = fabric_.random_.one_in(network.refuse_one_in);
  // Who finds it full is woken when there is room, ...
  if (lane.posts.size() >= kPostsMax) return PostResult::kFull;
  if (refuses) {  // ... and else at once
    transport_.mark_and_wake(*this);
    return PostResult::kFull;
  }
  const bool lends = !payload.empty() && fabric_.random_.one_in(network.lend_one_in);
  const Fabric::Stream& out = fabric_.way(rank_, peer_).streams[at];
  Post post{{header, {}, {}, false}, payload, token, lends};
  if (!lends) post.take(payload.size());
  if (!lends && lane.posts.empty() && fabric_.has_room(out, payload.size())) {
    fabric_.transmit(rank_, peer_, at, std::move(post.frame));
    return PostResult::kDone;
  }
  lane.posts.push_back(std::move(post));
  transport_.mark_and_wake(*this);
  return lends ? PostResult::kPending : PostResult::kDone;
}

void SimulatedTransport::Link::cancel(std::uint64_t token) {
  for (Lane& lane : lanes_) {
    std::erase_if(lane.posts, [&](Post& post) {
      if (!post.is_lent || post.token != token) return false;
      if (!post.has_begun() && post.frame.header.kind != FrameKind::kEager) return true;
      post.take(post.rest.size());
      post.is_lent = false;
      return false;
    });
  }
}

void SimulatedTransport::Link::abandon(const std::byte* begin, std::size_t bytes) {
  for (Lane& lane : lanes_) {
    const bool is_meant = lane.receives && lane.placement.kind == Placement::Kind::kInto &&
                          lane.placement.target >= begin && lane.placement.target < begin + bytes;
    if (is_meant) lane.placement = {};
  }
}

bool SimulatedTransport::Link::poll(FrameSink& sink) {
  if (closed_) return false;
  bool moved = false;
  for (std::size_t at = 0; at < lanes_.size(); ++at) {
    moved = receive(at, sink) || moved;
    moved = write(at, sink) || moved;
  }
  return end_if_over(sink) || moved;
}

// Writes what there is room for, now and then a part of a payload only.
bool SimulatedTransport::Link::write(std::size_t at, FrameSink& sink) {
  Lane& lane = lanes_[at];
  bool moved = false;
  while (!lane.posts.empty()) {
    Post& post = lane.posts.front();
    Fabric::Way& along = fabric_.way(rank_, peer_);
    if (!along.takes_nothing && !fabric_.has_room(along.streams[at], post.frame.payload.size())) {
      along.is_awaited = true;
      return moved;
    }
    if (post.rest.size() > 1 && fabric_.random_.one_in(fabric_.network_.partial_one_in)) {
      post.take(1 + fabric_.random_.below(post.rest.size() - 1));
      transport_.mark_and_wake(*this);
      return true;
    }
    post.take(post.rest.size());
    Post written = std::move(post);
    lane.posts.pop_front();
    fabric_.transmit(rank_, peer_, at, std::move(written.frame));
    if (written.is_lent) sink.sent(peer_, written.token);
    moved = true;
  }
  return moved;
}

// Frames that have arrived, now and then a part of a payload only.
bool SimulatedTransport::Link::receive(std::size_t at, FrameSink& sink) {
  Lane& lane = lanes_[at];
  bool moved = false;
  for (;;) {
    if (!lane.receives) {
      Fabric::Stream& in = fabric_.way(peer_, rank_).streams[at];
      if (in.frames.empty() || in.frames.front().arrives > fabric_.schedule_.now()) return moved;
      lane.arriving = std::move(in.frames.front());
      in.frames.pop_front();
      in.bytes -= lane.arriving.payload.size();
      if (std::exchange(fabric_.way(peer_, rank_).is_awaited, false)) {
        fabric_.announce(peer_, rank_, fabric_.schedule_.now());
      }
      lane.receives = true;
      lane.done = 0;
      lane.placement = {};
      lane.placement = sink.place(peer_, lane.arriving.header);
    }
    moved = true;
    if (!hand_over(lane, sink)) return moved;
    lane.receives = false;
    const FrameHeader header = lane.arriving.header;
    sink.received(peer_, header);
  }
}

// False where the rest comes later, or not at all.
bool SimulatedTransport::Link::hand_over(Lane& lane, FrameSink& sink) {
  const std::vector<std::byte>& payload = lane.arriving.payload;
  std::size_t end = payload.size();
  const std::size_t rest = end - lane.done;
  if (rest > kLineBytes && fabric_.random_.one_in(fabric_.network_.partial_one_in)) {
    end = lane.done + fabric_.random_.below(rest) / kLineBytes * kLineBytes;
  }
  while (lane.done < end) {
    const std::size_t bytes = std::min(kPieceBytes, end - lane.done);
    const auto piece = std::span(payload).subspan(lane.done, bytes);
    if (lane.placement.kind == Placement::Kind::kInto) {
      std::memcpy(lane.placement.target + lane.done, piece.data(), bytes);
    } else if (lane.placement.kind == Placement::Kind::kDeliver) {
      sink.deliver(peer_, lane.arriving.header, lane.done, piece);
    }
    lane.done += bytes;
  }
  if (lane.done < payload.size()) transport_.mark_and_wake(*this);
  return lane.done == payload.size() && !lane.arriving.is_torn;
}

bool SimulatedTransport::Link::end_if_over(FrameSink& sink) {
  const Fabric::Way& in = fabric_.way(peer_, rank_);
  if (in.end == Fabric::End::kOpen || fabric_.schedule_.now() < in.ends) return false;
  for (std::size_t at = 0; at < lanes_.size(); ++at) {
    const bool is_torn = lanes_[at].receives && lanes_[at].arriving.is_torn;
    if (!in.streams[at].frames.empty() || (lanes_[at].receives && !is_torn)) return false;
  }
  closed_ = true;
  return_lent(sink);
  const bool said_goodbye = in.end == Fabric::End::kGoodbye;
  sink.closed(peer_, said_goodbye
                         ? Status()
                         : Status(ErrorCode::kRankFailed,
                                  "the link to rank " + std::to_string(peer_) + " broke", peer_));
  return true;
}

void SimulatedTransport::Link::return_lent(FrameSink& sink) {
  for (Lane& lane : lanes_) {
    for (const Post& post : std::exchange(lane.posts, {})) {
      if (post.is_lent) sink.sent(peer_, post.token);
    }
  }
}

void SimulatedTransport::Link::give_up(FrameSink& sink) { return_lent(sink); }

// Everything that was posted goes first.
void SimulatedTransport::Link::leave(FrameSink& sink) {
  if (std::exchange(closed_, true)) return;
  TimePoint last = fabric_.schedule_.now();
  for (std::size_t at = 0; at < lanes_.size(); ++at) {
    for (Post& post : std::exchange(lanes_[at].posts, {})) {
      post.take(post.rest.size());
      fabric_.transmit(rank_, peer_, at, std::move(post.frame));
      if (post.is_lent) sink.sent(peer_, post.token);
    }
    last = std::max(last, fabric_.way(rank_, peer_).streams[at].last_arrival);
  }
  Fabric::Way& in = fabric_.way(peer_, rank_);
  in.takes_nothing = true;
  for (Fabric::Stream& stream : in.streams) stream = {};
  fabric_.announce(peer_, rank_, fabric_.schedule_.now());
  if (fabric_.way(rank_, peer_).end != Fabric::End::kOpen) return;
  // Nor does a goodbye pass where nothing else does.
  const TimePoint passes = fabric_.passes_at_(rank_, peer_);
  if (passes == kNever) return fabric_.cut(rank_, peer_, fabric_.network_.unacknowledged);
  fabric_.end_way(rank_, peer_, Fabric::End::kGoodbye, std::max(last, passes));
}

// ---- One rank's end of all links ----------------------------------------------------------------

SimulatedTransport::SimulatedTransport(Fabric& fabric, Rank rank) : fabric_(fabric), rank_(rank) {}
SimulatedTransport::~SimulatedTransport() = default;

EndpointTraits SimulatedTransport::traits() const {
  return {.eager_bytes_max = fabric_.network_.eager_bytes,
          .eager_credit_bytes = fabric_.network_.credit_bytes};
}

SimulatedTransport::Link& SimulatedTransport::link(Rank peer) {
  std::unique_ptr<Link>& link = links_[peer];
  if (link == nullptr) {
    link = std::make_unique<Link>(*this, peer);
    in_order_.push_back(link.get());
    // Nobody listens there any more, or nothing gets there.
    const auto is_cut_off = [&](Rank rank) {
      const auto at = static_cast<std::size_t>(rank);
      return fabric_.gone_[at] || fabric_.isolated_[at];
    };
    const bool is_in_touch = fabric_.ways_.contains(key_of(peer, rank_));
    const bool is_broken = peer != rank_ && (is_cut_off(peer) || is_cut_off(rank_));
    const bool is_apart =
        fabric_.passes_at_(rank_, peer) == kNever || fabric_.passes_at_(peer, rank_) == kNever;
    if (!is_in_touch && is_apart) {
      fabric_.cut(rank_, peer, fabric_.network_.unacknowledged);
    } else if (!is_in_touch && is_broken) {
      fabric_.refuse(rank_, peer);
    }
  }
  return *link;
}

Endpoint& SimulatedTransport::endpoint(Rank peer) { return link(peer); }

void SimulatedTransport::mark(Rank peer) {
  Link& meant = link(peer);
  if (std::exchange(meant.marked, true)) return;
  marked_.push_back(&meant);
}

void SimulatedTransport::mark_and_wake(Link& link) {
  if (!std::exchange(link.marked, true)) marked_.push_back(&link);
  fabric_.schedule_.in(fabric_.random_.up_to(kSoon), [this] { fabric_.wake_(rank_); });
}

bool SimulatedTransport::poll(FrameSink& sink) {
  bool moved = false;
  const std::vector<Link*> marked = std::exchange(marked_, {});
  for (Link* const each : marked) each->marked = false;
  for (Link* const each : marked) moved = each->poll(sink) || moved;
  return moved;
}

bool SimulatedTransport::has_unsent() const {
  return std::any_of(in_order_.begin(), in_order_.end(),
                     [](const Link* link) { return link->has_unsent(); });
}

std::size_t SimulatedTransport::lent() const {
  std::size_t lent = 0;
  for (const Link* const link : in_order_) lent += link->lent();
  return lent;
}

void SimulatedTransport::give_up(Rank peer, FrameSink& sink) {
  const auto found = links_.find(peer);
  if (found != links_.end()) found->second->give_up(sink);
}

void SimulatedTransport::close(TimePoint, FrameSink& sink) {
  if (std::exchange(left_, true)) return;
  for (Link* const link : in_order_) link->leave(sink);
  fabric_.gone_[static_cast<std::size_t>(rank_)] = true;
  // Nor does it take what is on its way on links of which it has not heard.
  for (Rank peer = 0; peer < fabric_.ranks_; ++peer) {
    const bool is_on_its_way = fabric_.ways_.contains(key_of(peer, rank_));
    if (is_on_its_way && !links_.contains(peer)) fabric_.refuse(peer, rank_);
  }
}

}  // namespace unisono::sim
