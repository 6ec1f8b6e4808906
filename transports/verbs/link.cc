// States and epochs of one link; see link.h.
#include "transports/verbs/link.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/log.h"

namespace unisono::verbs {
namespace {

// The peer left when its device had delivered everything, so what is missing is on its way from the
// device here, or was never sent.
constexpr auto kLastWordsPatience = std::chrono::seconds(1);

constexpr std::uint32_t kEpochsAheadMax = 1000;
constexpr Immediate kNoImmediate{static_cast<ImmediateKind>(0xff), 0};

std::string rank_text(Rank rank) { return "rank " + std::to_string(rank); }

}  // namespace

Link::Link(Rank self, Rank peer, const LinkResources& shared, QueuePairDirectory& directory,
           SideChannel& side)
    : self_(self),
      peer_(peer),
      shared_(shared),
      side_(side),
      banned_(shared.rails.size()),
      queue_pairs_(shared.rails, shared.options, shared.counts, directory, shared.paths) {}

Link::~Link() {
  // They go before the memory that they read and write.
  queue_pairs_.close();
}

std::unique_ptr<Link> Link::make(Rank self, Rank peer, const LinkResources& shared,
                                 QueuePairDirectory& directory, SideChannel& side) {
  std::unique_ptr<Link> made(new Link(self, peer, shared, directory, side));
  if (const Status rings = made->make_rings(); !rings) made->give_up(rings);
  return made;
}

Status Link::make_rings() {
  const std::size_t bytes = shared_.options.ring_bytes;
  UNISONO_ASSIGN(std::unique_ptr<RailMemory> out, RailMemory::make(shared_.rails, bytes));
  UNISONO_ASSIGN(std::unique_ptr<RailMemory> in,
                 RailMemory::make(shared_.rails, bytes, IBV_ACCESS_REMOTE_WRITE));
  outgoing_ = std::make_unique<Outgoing>(shared_, std::move(out));
  incoming_ = std::make_unique<Incoming>(peer_, shared_, std::move(in));
  return Status();
}

std::unique_ptr<Link> Link::make_stream(Rank self, Rank peer, const LinkResources& shared,
                                        QueuePairDirectory& directory, SideChannel& side) {
  std::unique_ptr<Link> made(new Link(self, peer, shared, directory, side));
  made->stream_ = &side.transport().endpoint(peer);
  return made;
}

PostResult Link::post_send(const FrameHeader& header, std::span<const std::byte> payload,
                           std::uint64_t token) {
  if (is_stream()) return stream_->post_send(header, payload, token);
  if (state_ == LinkState::kEnded || closing_ || peer_left_) return PostResult::kDone;
  const PostResult result = outgoing_->post(header, payload, token);
  // Large frames come in rows: they leave with the next poll, together, unless each takes the time
  // of a sum, in which the peer may read the ones before.
  const bool waits = payload.size() > kWholePayloadMax && !shared_.options.checksum;
  if (result != PostResult::kFull && !waits) send_now();
  return result;
}

void Link::send_now() {
  if (state_ != LinkState::kStanding || !queue_pairs_.is_open()) return;
  outgoing_->stage(queue_pairs_.control());
  incoming_->stage_acknowledgements(queue_pairs_.control());
  post_staged();
}

// A device that has failed takes nothing; another may.
void Link::post_staged() {
  or_interrupt([&] {
    QueuePair* failed = nullptr;
    const Status posted = queue_pairs_.post(&failed);
    if (posted) return;
    lose(failed->rail_index(), posted.code(), rank_text(peer_) + " over " + posted.message());
  });
}

void Link::close_queue_pairs() {
  queue_pairs_.close();
  broken_.reset();
  if (incoming_ == nullptr) return;
  incoming_->forget_readers();
  // The link of a peer that has written on behind its goodbye does not end well.
  if (peer_left_ && incoming_->may_be_written_up_to(last_position_)) {
    static_cast<void>(incoming_->written_up_to(last_position_));
  }
}

void Link::cancel(std::uint64_t token) {
  if (is_stream()) return stream_->cancel(token);
  if (state_ == LinkState::kEnded || outgoing_ == nullptr) return;
  if (queue_pairs_.is_open() && outgoing_->is_exposed(token)) interrupt();
  outgoing_->cancel(token);
  begin_due_epoch();
}

void Link::abandon(const std::byte* begin, std::size_t bytes) {
  if (is_stream()) return stream_->abandon(begin, bytes);
  if (state_ == LinkState::kEnded || incoming_ == nullptr) return;
  if (queue_pairs_.is_open() && incoming_->is_being_read(begin, bytes)) interrupt();
  incoming_->abandon(begin, bytes);
  begin_due_epoch();
}

void Link::wanted() {
  if (state_ == LinkState::kIdle && !is_stream()) begin_epoch(1);
}

void Link::interrupt() {
  close_queue_pairs();
  state_ = LinkState::kExchanging;
  met_ = peer_ready_ = false;
  marker_ = 0;
  if (!std::exchange(epoch_due_, true)) ++epoch_;
}

template <typename Work>
void Link::or_interrupt(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    interrupt();
  }
}

// At once, so that the peer hears why its queue pairs break before it gives up their ports.
void Link::begin_due_epoch() {
  try {
    if (epoch_due_) begin_epoch(epoch_);
  } catch (const std::bad_alloc&) {
  }
}

// Everything under way is cut off; both sides go on from what they say in their hellos.
void Link::begin_epoch(std::uint32_t epoch) {
  if (state_ == LinkState::kEnded || closing_ || peer_left_) return;
  interrupt();
  epoch_ = epoch;
  incoming_->restart();
  if (const Status opened = queue_pairs_.open(*this, banned_); !opened) return give_up(opened);
  side_.send(peer_, encode(make_hello()));
  epoch_due_ = false;
  ++shared_.counts.epochs;
}

Hello Link::make_hello() const {
  const RailMemory& ring = incoming_->memory();
  Hello hello;
  hello.epoch = epoch_;
  hello.ring_address = reinterpret_cast<std::uint64_t>(ring.begin());
  hello.ring_bytes = static_cast<std::uint32_t>(shared_.options.ring_bytes);
  for (std::size_t rail = 0; rail < shared_.rails.size(); ++rail) {
    hello.ring_keys[rail] = ring.registration().rkey(rail);
  }
  hello.immediates = static_cast<std::uint32_t>(shared_.immediates);
  hello.has_sums = shared_.options.checksum;
  hello.consumed = incoming_->consumed();
  hello.read = incoming_->read_count();
  hello.lent = outgoing_->lent_count();
  hello.sources = outgoing_->sources();
  hello.queue_pairs = queue_pairs_.ends();
  return hello;
}

void Link::message(std::string_view bytes) {
  if (state_ == LinkState::kEnded || closing_ || is_stream()) return;
  Result<LinkMessage> message = decode_link_message(bytes);
  if (!message) return give_up(message.error());
  switch (message->type) {
    case LinkMessageType::kHello:
      return on_hello(message->hello);
    case LinkMessageType::kReady:
      return on_ready(message->epoch);
    case LinkMessageType::kLeaving:
      return on_leaving(message->position);
    case LinkMessageType::kFailed:
      return give_up(Status(ErrorCode::kRankFailed, message->text, peer_));
  }
}

// Records of one kind are rubbish to who expects the other.
Status Link::check_sums(const Hello& hello) const {
  if (hello.has_sums == shared_.options.checksum) return {};
  const auto text = [](bool has_sums) { return has_sums ? "on" : "off"; };
  return {ErrorCode::kMismatch, fmt::format("UNISONO_CHECKSUM is {} there and {} here; all ranks "
                                            "must share it",
                                            text(hello.has_sums), text(shared_.options.checksum))};
}

void Link::on_hello(const Hello& hello) {
  if (hello.epoch < epoch_ || (hello.epoch == epoch_ && met_)) return;
  // Both sides count one by one; only nonsense runs ahead, and the number must not run out.
  if (hello.epoch - epoch_ > kEpochsAheadMax) {
    return give_up(Status(ErrorCode::kProtocol, "its hello is of epoch " +
                                                    std::to_string(hello.epoch) + " after " +
                                                    std::to_string(epoch_)));
  }
  if (hello.epoch > epoch_ || epoch_due_) begin_epoch(hello.epoch);
  if (!queue_pairs_.is_open()) return;
  Status status = check_sums(hello);
  if (status) status = queue_pairs_.pair(self_ < peer_, hello.queue_pairs);
  if (status) status = outgoing_->resume(hello);
  if (status) status = incoming_->resume(hello);
  if (!status) return give_up(status);
  met_ = true;
  connect();
}

// Queue pairs stand here as soon as the path to each partner is known.
void Link::connect() {
  or_interrupt([&] {
    QueuePair* unreached = nullptr;
    const Result<bool> connected = queue_pairs_.connect(&unreached);
    if (!connected) {
      const Status& error = connected.error();
      return lose(unreached->rail_index(), error.code(),
                  rank_text(peer_) + " over " + error.message());
    }
    if (!*connected) return;
    side_.send(peer_, encode_ready(epoch_));
    if (peer_ready_) state_ = LinkState::kStanding;
  });
}

void Link::on_ready(std::uint32_t epoch) {
  if (epoch != epoch_) return;
  peer_ready_ = true;
  if (queue_pairs_.is_connected()) state_ = LinkState::kStanding;
}

// It overtakes immediates of what was written before it, and only they say that this can be seen
// here. Those of queue pairs that are gone are lost, and nothing is on its way any more.
void Link::on_leaving(std::uint64_t position) {
  const Status possible = queue_pairs_.is_connected() ? incoming_->check_position(position)
                                                      : incoming_->written_up_to(position);
  if (!possible) return give_up(possible);
  peer_left_ = true;
  last_position_ = position;
}

void Link::side_closed(const Status& cause) {
  if (is_stream() || state_ == LinkState::kEnded || closing_) return;
  const bool is_early = cause && !peer_left_ && state_ != LinkState::kIdle;
  cause_ = !is_early
               ? cause
               : Status(ErrorCode::kRankFailed,
                        rank_text(peer_) + " left without the end of what it was sending", peer_);
  closing_ = true;
}

void Link::no_memory() {
  if (is_stream()) return;
  try {
    give_up(Status(ErrorCode::kOutOfResources, rank_text(self_) + " has no memory left for what " +
                                                   rank_text(peer_) + " sends"));
  } catch (const std::bad_alloc&) {
    // Not even for those words. The peer finds that nobody answers.
    if (!has_failed()) cause_ = Status(ErrorCode::kOutOfResources, kNoMemory, self_);
    closing_ = true;
    close_queue_pairs();
  }
}

// Tells the peer, too, so that both name the same reason. The link ends with the next poll.
void Link::give_up(Status cause) {
  if (state_ == LinkState::kEnded || has_failed()) return;
  const bool is_own = cause.code() == ErrorCode::kOutOfResources;
  const bool says_more =
      is_own || cause.code() == ErrorCode::kProtocol || cause.code() == ErrorCode::kCorrupted ||
      cause.code() == ErrorCode::kMismatch || cause.code() == ErrorCode::kUnsupported;
  const ErrorCode code = says_more ? cause.code() : ErrorCode::kRankFailed;
  cause_ = Status(code, "the verbs link to " + rank_text(peer_) + ": " + cause.message(),
                  is_own ? self_ : peer_);
  closing_ = true;
  close_queue_pairs();
  side_.send(peer_, encode_failed(rank_text(self_) + " gave it up: " + cause.message()));
}

void Link::immediate(std::optional<std::uint32_t> bits) {
  if (state_ == LinkState::kEnded || has_failed()) return;
  try {
    const Immediate immediate = decode_immediate(bits.value_or(~0u)).value_or(kNoImmediate);
    if (const Status taken = take(immediate); !taken) give_up(taken);
  } catch (const std::bad_alloc&) {
    no_memory();
  }
}

Status Link::take(const Immediate& immediate) {
  switch (immediate.kind) {
    case ImmediateKind::kWritten:
      return incoming_->written(immediate.value);
    case ImmediateKind::kConsumed:
      return outgoing_->consumed(immediate.value);
    case ImmediateKind::kRead:
      return outgoing_->read(immediate.value);
    default:
      return Status(ErrorCode::kProtocol, "it sent an immediate of no known kind");
  }
}

void Link::broken(const QueuePair& queue_pair, ibv_wc_status status) {
  if (!broken_) broken_ = {queue_pair.rail_index(), status};
}

void Link::handle_broken() {
  if (!broken_) return;
  if (state_ == LinkState::kEnded || closing_ || peer_left_) return broken_.reset();
  const auto [rail, status] = *broken_;
  const std::string what =
      rank_text(peer_) + " over " + shared_.rails[rail]->name() + ": " + describe(status);
  const bool refused = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
                       status == IBV_WC_REM_OP_ERR;
  if (refused) return give_up(Status(ErrorCode::kProtocol, what));
  lose(rail, ErrorCode::kRankFailed, what);
}

// What was under way goes on over the rails that are left.
void Link::lose(std::size_t rail, ErrorCode code, const std::string& what) {
  if (closing_ || peer_left_) return;
  banned_[rail] = has_bans_ = true;
  for (std::size_t other = 0; other < banned_.size(); ++other) {
    if (banned_[other] || !shared_.rails[other]->failure().empty()) continue;
    log::warning(what + "; going on over " + shared_.rails[other]->name());
    return begin_epoch(epoch_ + 1);
  }
  give_up(Status(code, what));
}

// The link works again; what had failed may be tried with the next epoch.
void Link::lift_bans() {
  if (state_ != LinkState::kStanding || !std::exchange(has_bans_, false)) return;
  banned_.assign(banned_.size(), false);
}

void Link::rail_failed(std::size_t rail) {
  if (state_ == LinkState::kEnded || closing_ || peer_left_ || !queue_pairs_.uses(rail)) return;
  or_interrupt([&] {
    log::warning("the link to " + rank_text(peer_) + " leaves " + shared_.rails[rail]->failure());
    begin_epoch(epoch_ + 1);
  });
}

bool Link::progress(FrameSink& sink) {
  if (is_stream() || state_ == LinkState::kEnded) return false;
  if (state_ == LinkState::kIdle || outgoing_ == nullptr) return end_if_due(sink);
  if (epoch_due_) begin_epoch(epoch_);
  if (met_ && !queue_pairs_.is_connected() && queue_pairs_.is_open()) connect();
  bool moved = outgoing_->return_tokens(peer_, sink);
  const std::uint64_t had = incoming_->had_count();
  const Result<bool> received = incoming_->progress(queue_pairs_, sink);
  if (!received) give_up(received.error());
  // A read that is only staged has not come.
  if (incoming_->had_count() != had) lift_bans();
  moved |= received && *received;
  send_now();
  return end_if_due(sink) || moved;
}

// The peer lies about what it has sent, or a device did not bring it.
Status Link::why_incomplete() {
  const std::string what = rank_text(peer_) + " left, but the end of what it sent did not come";
  if (!queue_pairs_.is_open() || !queue_pairs_.control().rail().has_failed()) {
    return Status(ErrorCode::kRankFailed, what, peer_);
  }
  return Status(ErrorCode::kSystem, what + ": " + queue_pairs_.control().rail().failure(), self_);
}

bool Link::end_if_due(FrameSink& sink) {
  if (!closing_ || state_ == LinkState::kEnded) return false;
  // Goodbye comes after the data, but over another way.
  if (cause_ && incoming_->consumed() != last_position_) {
    // Each poll has taken all that was there when it began. One more follows the wait, however long
    // this rank does not run.
    if (!last_words_until_) last_words_until_ = Clock::now() + kLastWordsPatience;
    const bool waits = Clock::now() < *last_words_until_ || !std::exchange(looks_last_, true);
    if (queue_pairs_.is_open() && waits) return false;
    cause_ = why_incomplete();
  }
  state_ = LinkState::kEnded;
  close_queue_pairs();
  if (outgoing_ != nullptr) {
    incoming_->drop();
    outgoing_->drop(peer_, sink);
  }
  sink.closed(peer_, cause_);
  return true;
}

bool Link::has_unsent() const {
  if (is_stream() || state_ == LinkState::kIdle || state_ == LinkState::kEnded) return false;
  return !closing_ && !peer_left_ && outgoing_->has_unposted();
}

bool Link::is_settled() {
  if (is_stream() || state_ == LinkState::kIdle || state_ == LinkState::kEnded) return true;
  if (closing_ || peer_left_) return true;
  if (state_ != LinkState::kStanding || !outgoing_->is_settled()) return false;
  // A completion of the last request says that the peer's device has everything before it.
  // What the engine answers meanwhile needs another one.
  if (marker_ == 0 || marked_ != outgoing_->appended()) {
    if (queue_pairs_.control().room() == 0) return false;
    marker_ = queue_pairs_.control().stage_immediate(
        encode(ImmediateKind::kConsumed, incoming_->consumed() / kLine));
    marked_ = outgoing_->appended();
    queue_pairs_.control().ask_for_completion();
    post_staged();
    return false;
  }
  return queue_pairs_.is_open() && queue_pairs_.control().is_done(marker_);
}

void Link::leave() {
  if (is_stream() || state_ == LinkState::kIdle || state_ == LinkState::kEnded || closing_) return;
  side_.send(peer_, is_settled()
                        ? encode_leaving(outgoing_->appended())
                        : encode_failed(rank_text(self_) + " left before everything was sent"));
}

void Link::drop(FrameSink& sink) {
  close_queue_pairs();
  if (state_ != LinkState::kEnded && outgoing_ != nullptr) {
    incoming_->drop();
    outgoing_->drop(peer_, sink);
  }
  state_ = LinkState::kEnded;
}

}  // namespace unisono::verbs
