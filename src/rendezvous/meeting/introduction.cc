#include "rendezvous/meeting/introduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/suspended.h"
#include "base/unproven_peers.h"
#include "rendezvous/failure/silence.h"
#include "rendezvous/failure/witnesses.h"
#include "rendezvous/messages/peer_information.h"
#include "rendezvous/messages/rank_text.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {
namespace {

// After our deadline: time for the arbiter's list of missing ranks to reach us.
constexpr Duration kLastWordTime = std::chrono::seconds(1);

// Reads the world table from messages as they come.
class TableReader {
 public:
  TableReader(int size, const Member& self, const JobKey& known_key) : size_(size), self_(self) {
    world_.key = known_key;
  }
  /// True when the table is whole.
  Result<bool> take(const Message& message) {
    if (message.type == MessageType::kRefusal) return decode_refusal(message.body);
    if (message.type == MessageType::kBeat) return false;
    if (message.type == MessageType::kAwaiting) {
      UNISONO_ASSIGN(rank_zero_, decode_awaiting(message.body));
      log::debug(fmt::format("rank {} has reached {} and waits for the others", self_.rank,
                             member_text(*rank_zero_)));
      return false;
    }
    if (message.type == MessageType::kWelcome && world_.job_id.empty()) {
      UNISONO_TRY(take_welcome(message.body));
      return false;
    }
    if (message.type != MessageType::kMembers || world_.job_id.empty()) {
      return Status(ErrorCode::kProtocol, "the arbiter spoke out of turn");
    }
    UNISONO_TRY(decode_members(message.body, size_, &world_.members));
    return world_.members.size() == static_cast<std::size_t>(size_);
  }
  /// Who that is, if it has been told.
  const std::optional<Member>& rank_zero() const { return rank_zero_; }
  World finish() {
    for (Member& member : world_.members) member.settings = self_.settings;
    world_.rank = self_.rank;
    world_.size = size_;
    return std::move(world_);
  }

 private:
  Status take_welcome(std::string_view body) {
    UNISONO_ASSIGN(WelcomeMessage welcome, decode_welcome(body));
    if (welcome.size != size_ || welcome.job_id.empty()) {
      return {ErrorCode::kProtocol, "the arbiter welcomes to another world"};
    }
    world_.job_id = std::move(welcome.job_id);
    if (welcome.key_hex.empty()) return {};
    UNISONO_ASSIGN(world_.key, JobKey::from_text(welcome.key_hex.view()));
    return {};
  }

  int size_;
  const Member& self_;
  std::optional<Member> rank_zero_;
  World world_;
};

// Whether the arbiter that has taken this rank in still says something. Who was not heard yet may
// be late, and in the process of rank 0 both are run or neither is.
class Waiting {
 public:
  Waiting(const Applicant& self, TimePoint now)
      : self_(self.member),
        silence_(self.member.rank == 0 ? std::chrono::milliseconds{0} : self.silence, now) {}

  void on_wake(TimePoint now) {
    silence_.on_wake(now, time_suspended());
    silence_.take_beat(now);
  }
  void on_heard(TimePoint now) { silence_.on_heard(0, now); }
  bool is_over(TimePoint now) { return !silence_.take_silent(now).empty(); }
  TimePoint next_due() const { return silence_.next_due(); }

  Status why(const std::optional<Member>& rank_zero) const {
    const bool is_here = rank_zero && host_key(*rank_zero) == host_key(self_);
    const ProcessSight sight = is_here ? sight_of(*rank_zero) : ProcessSight::kUnseen;
    return {ErrorCode::kRankFailed,
            fmt::format("{} is silent: it had accepted {}, and nothing was heard of it for {} "
                        "(UNISONO_SILENCE) before all ranks had arrived; {}",
                        rank_zero ? member_text(*rank_zero) : "rank 0", member_text(self_),
                        duration_text(silence_.limit()), sight_text(sight)),
            0};
  }

 private:
  const Member& self_;
  Silence silence_;
};

// Until the arbiter has told all that it waits for.
void await_end(ControlStream* stream, TimePoint deadline) {
  while (wait_ready(stream->fd(), false, deadline) && stream->receive()) {
    stream->drop_input(stream->input().size());
  }
}

Failure hung_up(bool on_proof) {
  if (on_proof) {
    return {{ErrorCode::kAuthentication,
             "rank 0 refused this rank's proof of the job key; set the same UNISONO_JOB_KEY on all "
             "ranks"},
            false,
            true};
  }
  return {{ErrorCode::kRendezvous, "the connection was closed in the middle of the handshake"}};
}

}  // namespace

Attempt<Joined> converse(ControlStream stream, const Applicant& self, const JobKey& key,
                         TimePoint deadline) {
  const auto failed = [](Status why, bool final = false) {
    return Failure{std::move(why), final, false, true};
  };
  stream.queue(encode(JoinMessage{self.size, self.member}));
  if (!self.why_not) stream.queue(encode_refusal(self.why_not, MessageType::kDecline));
  TableReader table(self.size, self.member, key);
  Waiting waiting(self, Clock::now());
  bool gave_up = false;
  for (;;) {
    const Status sent = stream.flush();
    const Result<bool> waited = wait_ready(stream.fd(), stream.has_output() && sent.ok(),
                                           std::min(deadline, waiting.next_due()), self.go_on);
    const TimePoint now = Clock::now();
    waiting.on_wake(now);
    const bool ready = waited && *waited;
    const std::size_t known = stream.input().size();
    const bool open = !ready || stream.receive();
    if (stream.input().size() > known) waiting.on_heard(now);
    for (;;) {
      auto message = stream.next();
      if (!message) return failed(message.error());
      if (!*message) break;
      auto whole = table.take(**message);
      if (!whole) {
        const bool is_refused = (*message)->type == MessageType::kRefusal;
        // The arbiter of a rank 0 that ends would end with it.
        if (is_refused && !self.why_not && self.member.rank == 0) await_end(&stream, deadline);
        return failed(whole.error(), is_refused);
      }
      if (*whole) return Joined{std::move(stream), table.finish()};
    }
    if (!open) {
      return failed({ErrorCode::kRendezvous,
                     "the arbiter closed the connection before all ranks had arrived"});
    }
    if (waiting.is_over(now)) return failed(waiting.why(table.rank_zero()), true);
    if (ready) continue;
    if (!waited) return failed(waited.error(), true);
    if (now < deadline) continue;
    if (std::exchange(gave_up, true)) {
      return failed(
          {ErrorCode::kRendezvous, "rank 0 has accepted this rank but does not answer", 0}, true);
    }
    stream.queue(encode(MessageType::kGiveUp));
    deadline += kLastWordTime;
  }
}

std::optional<Failure> authenticate(ControlStream* stream, const JobKey& key, std::string_view job,
                                    Rank self, TimePoint deadline,
                                    const std::function<Status()>& go_on,
                                    HandshakePurpose purpose) {
  Handshake handshake(key, Handshake::Role::kInitiator,
                      HandshakeIdentity{std::string(job), self, 0, purpose, 0});
  const TimePoint began = Clock::now();
  bool proof_sent = false;
  stream->queue(handshake.take_output());
  for (;;) {
    const Status sent = stream->flush();
    if (handshake.done()) return sent ? std::nullopt : std::optional(hung_up(false));
    const Result<bool> waited = wait_ready(stream->fd(), false, deadline, go_on);
    if (!waited) return Failure{waited.error(), true};
    if (!*waited) {
      return Failure{
          {ErrorCode::kRendezvous, "something listens there but does not answer as an arbiter"}};
    }
    const bool open = stream->receive(kHandshakeBytesMax);
    const std::string_view input = stream->input();
    std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()),
                                     input.size());
    const Status outcome = handshake.consume(&bytes);
    stream->drop_input(input.size() - bytes.size());
    if (!outcome) {
      const bool final =
          outcome.code() == ErrorCode::kAuthentication || outcome.code() == ErrorCode::kMismatch;
      return Failure{outcome, final};
    }
    if (!open && !handshake.done()) {
      const bool was_told = sent.ok() && !stream->was_reset();
      return hung_up(proof_sent && was_told && Clock::now() - began < kPromptProof);
    }
    std::string answer = handshake.take_output();
    proof_sent = proof_sent || !answer.empty();
    stream->queue(std::move(answer));
  }
}

}  // namespace unisono::rendezvous
