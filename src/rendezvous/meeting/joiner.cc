#include "rendezvous/meeting/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <variant>

#include "base/grace_periods.h"
#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/meeting/introduction.h"
#include "rendezvous/meeting/unique_id.h"
#include "rendezvous/messages/rank_text.h"
#include "rendezvous/sessions/rendezvous.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous/store/store_access.h"
#include "unisono/rendezvous.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBackoffMin = milliseconds(2);
constexpr Duration kBackoffMax = milliseconds(50);
constexpr std::size_t kPublishedHostsMax = 8;

std::string store_key(const RendezvousPoint& point) {
  return point.name.empty() ? "unisono/rendezvous" : "unisono/rendezvous/" + point.name;
}

std::string place_text(const RendezvousPoint& point) {
  switch (point.kind) {
    case RendezvousPoint::Kind::kAlone:
      return "alone";
    case RendezvousPoint::Kind::kAbstract:
      return unix_text(point.name);
    case RendezvousPoint::Kind::kTcp:
      return tcp_text(point.name, point.port);
    case RendezvousPoint::Kind::kFile:
      return fmt::format("the file '{}'", point.name);
    case RendezvousPoint::Kind::kStore:
      return "the given store";
    case RendezvousPoint::Kind::kUniqueId:
      return "the sockets of the unique id";
  }
  return "";
}

// Ranks are told where to meet, and perhaps what an earlier job has left.
bool is_published(const RendezvousPoint& point) {
  return point.kind == RendezvousPoint::Kind::kFile ||
         point.kind == RendezvousPoint::Kind::kStore ||
         point.kind == RendezvousPoint::Kind::kUniqueId;
}

std::string_view handshake_job_id(const RendezvousPoint& point, const Contact& contact) {
  return point.kind == RendezvousPoint::Kind::kTcp ? kRendezvousJobId
                                                   : std::string_view(contact.job_id);
}

Status write_store(const RendezvousPoint& point, const Contact& contact) {
  std::string text(to_text(contact).view());
  const Status outcome = set_in_store(*point.store, store_key(point), text);
  cleanse(&text);
  return outcome;
}

Result<Contact> read_store(const RendezvousPoint& point, TimePoint deadline) {
  const Duration wait = point.go_on ? kGoOnEvery : seconds(1);
  const TimePoint until = std::min(deadline, Clock::now() + wait);
  UNISONO_ASSIGN(std::string text, get_from_store(*point.store, store_key(point), until));
  if (text.empty()) return store_failed(fmt::format("it holds no '{}' yet", store_key(point)));
  auto contact = contact_from_text(text);
  cleanse(&text);
  return contact;
}

// A key is either published or given to every rank.
Status take_key(const RendezvousPoint& point, Contact* contact) {
  if (contact->has_key && point.has_key) {
    return {ErrorCode::kAuthentication,
            fmt::format("rank 0 has no job key, this rank has one, at {}; set the same "
                        "UNISONO_JOB_KEY on all ranks or on none",
                        place_text(point))};
  }
  if (!contact->has_key && !point.has_key) {
    return {ErrorCode::kAuthentication,
            fmt::format("rank 0 has a job key, this rank has none, at {}; set the same "
                        "UNISONO_JOB_KEY on all ranks",
                        place_text(point))};
  }
  if (point.has_key) contact->key = point.key;
  return {};
}

// Where to look now; a file or store may say something newer each time.
Result<Contact> look_up(const RendezvousPoint& point, TimePoint deadline) {
  Contact contact;
  contact.has_key = point.has_key;
  contact.key = point.key;
  switch (point.kind) {
    case RendezvousPoint::Kind::kAbstract:
      contact.unix_name = point.name;
      return contact;
    case RendezvousPoint::Kind::kTcp:
      contact.tcp.emplace_back(point.name, point.port);
      return contact;
    case RendezvousPoint::Kind::kFile:
      return read_contact_file(point.name);
    case RendezvousPoint::Kind::kStore:
      return read_store(point, deadline);
    case RendezvousPoint::Kind::kUniqueId:
      return contact_of(point.id);
    case RendezvousPoint::Kind::kAlone:
      break;
  }
  return Status(ErrorCode::kRendezvous, "a world of one rank has no rendezvous");
}

Status may_go_on(const Applicant& self) { return self.go_on ? self.go_on() : Status(); }

// The arbiter's own name, random unless ranks compute it: what listens there is no other job.
Attempt<Joined> attend_over_unix(const RendezvousPoint& point, const Contact& contact, GuardedFd fd,
                                 const Applicant& self, TimePoint deadline) {
  ControlStream stream(std::move(fd));
  if (is_published(point) && point.has_key) {
    auto failure = authenticate(&stream, contact.key, contact.job_id, self.member.rank,
                                std::min(deadline, Clock::now() + kStrangerTime), self.go_on);
    if (failure) {
      failure->final = failure->final || failure->proof_refused;
      return *std::move(failure);
    }
  }
  return converse(std::move(stream), self, contact.key, deadline);
}

Attempt<Joined> attend_over_tcp(const RendezvousPoint& point, const Contact& contact,
                                const std::pair<std::string, std::uint16_t>& address,
                                const Applicant& self, TimePoint deadline) {
  auto fd = connect_tcp(address.first, address.second, deadline, self.go_on);
  if (!fd) return Failure{fd.error()};
  ControlStream stream(std::move(*fd));
  if (auto failure =
          authenticate(&stream, contact.key, handshake_job_id(point, contact), self.member.rank,
                       std::min(deadline, Clock::now() + kStrangerTime), self.go_on)) {
    failure->why = Status(
        failure->why.code(),
        fmt::format("{}: {}", tcp_text(address.first, address.second), failure->why.message()));
    // Whoever listens by now at an address that a dead job left behind decides nothing. Only a
    // refused proof of a given key says something: it was for this job id, and it is the same key
    // that the next job would ask for.
    if (is_published(point) && may_go_on(self)) {
      failure->final = false;
      failure->proof_refused = failure->proof_refused && point.has_key;
    }
    return *std::move(failure);
  }
  return converse(std::move(stream), self, contact.key, deadline);
}

// Tries every address of the contact once.
Attempt<Joined> attend_once(const RendezvousPoint& point, const Applicant& self,
                            TimePoint deadline) {
  auto contact = look_up(point, deadline);
  if (!contact) return Failure{contact.error()};
  const Status agreed = is_published(point) ? take_key(point, &*contact) : Status();
  Failure last{{ErrorCode::kRendezvous, "it names no address"}};
  if (!contact->unix_name.empty()) {
    auto fd = connect_unix(contact->unix_name);
    // The arbiter lives, so this is no leftover.
    if (fd && !agreed) return Failure{agreed, true};
    if (fd) return attend_over_unix(point, *contact, std::move(*fd), self, deadline);
    last = {fd.error()};
  }
  if (!agreed) return Failure{agreed};
  for (const auto& address : contact->tcp) {
    auto attempt = attend_over_tcp(point, *contact, address, self, deadline);
    if (!std::holds_alternative<Failure>(attempt)) return attempt;
    Failure& failure = std::get<Failure>(attempt);
    if (failure.reached_arbiter) return failure;
    // What a living arbiter says tells more than an address that leads nowhere.
    if (failure.final || !last.proof_refused) last = std::move(failure);
    if (last.final || !may_go_on(self)) break;
  }
  return last;
}

// Until when a rank looks for an arbiter that it had reached and finds no more.
class ArbiterAwaited {
 public:
  void note(bool reached, TimePoint now) {
    was_reached_ = was_reached_ || reached;
    if (reached) {
      until_ = kNever;
    } else if (was_reached_ && until_ == kNever) {
      until_ = now + grace::kReturn;
    }
  }
  TimePoint until() const { return until_; }

 private:
  bool was_reached_ = false;
  TimePoint until_ = kNever;
};

std::string unreached_text(const RendezvousPoint& point, Rank self, std::string_view said,
                           std::string_view when, Duration waited, const Status& why) {
  // Such a name says nothing to people.
  const std::string_view remedy =
      point.kind == RendezvousPoint::Kind::kAbstract && !point.within_process
          ? "; rank 0 is not running, or its MASTER_ADDR, MASTER_PORT or run id differ from those "
            "of this rank (the name is a hash of them)"
          : "";
  return fmt::format("rank {} {} rank 0 at {} {} {}: {}{}", self, said, place_text(point), when,
                     duration_text(waited), why.message(), remedy);
}

Result<Joined> attend(const RendezvousPoint& point, const Applicant& self, TimePoint started,
                      TimePoint deadline) {
  Duration backoff = kBackoffMin;
  int refused_proofs = 0;
  ArbiterAwaited awaited;
  TimePoint warn_at = warning_at(started, point.warn_after, deadline);
  for (;;) {
    auto attempt = attend_once(point, self, deadline);
    if (auto* joined = std::get_if<Joined>(&attempt)) return std::move(*joined);
    const Failure& failure = std::get<Failure>(attempt);
    refused_proofs = failure.proof_refused ? refused_proofs + 1 : 0;
    if (failure.final || refused_proofs >= kRefusedProofsMax) return failure.why;
    UNISONO_TRY(may_go_on(self));
    const TimePoint now = Clock::now();
    awaited.note(failure.reached_arbiter, now);
    if (now >= awaited.until()) {
      return Status(ErrorCode::kRankFailed,
                    fmt::format("rank 0 died or gave up before all ranks had arrived: its arbiter "
                                "closed the connection, and there was none at {} within {}",
                                place_text(point), duration_text(grace::kReturn)),
                    0);
    }
    if (now >= warn_at && !failure.reached_arbiter) {
      warn_at = kNever;
      log::warning(unreached_text(point, self.member.rank, "has not reached", "after",
                                  now - started, failure.why) +
                   "; trying until the deadline (UNISONO_TIMEOUT)");
    }
    if (now >= deadline) {
      return Status(ErrorCode::kRendezvous,
                    unreached_text(point, self.member.rank, "did not reach", "within",
                                   now - started, failure.why),
                    0);
    }
    std::this_thread::sleep_for(std::min<Duration>(backoff, deadline - now));
    backoff = std::min(backoff * 2, kBackoffMax);
  }
}

Status cannot_open(const RendezvousPoint& point, const Status& why) {
  if (point.kind == RendezvousPoint::Kind::kUniqueId) return why;
  std::string remedy;
  if (point.kind == RendezvousPoint::Kind::kTcp) {
    remedy =
        "; another job or program may use the port: give another one by UNISONO_PORT or in "
        "the address";
  } else if (point.kind == RendezvousPoint::Kind::kAbstract) {
    remedy = "; another job with the same address, port and run id may be starting";
  }
  return {ErrorCode::kRendezvous,
          fmt::format("rank 0 cannot open the rendezvous: {}{}", why.message(), remedy), 0};
}

// Opens the sockets of the rendezvous and notes in `contact` how to reach them.
Result<std::vector<Listener>> open_listeners(const RendezvousPoint& point, Contact* contact) {
  std::vector<Listener> listeners;
  if (point.kind == RendezvousPoint::Kind::kTcp) {
    UNISONO_ASSIGN(Listener listener, listen_tcp(point.name, point.port, point.interface_address));
    listeners.push_back(std::move(listener));
    return listeners;
  }
  if (point.kind == RendezvousPoint::Kind::kUniqueId) return take_listeners(contact->job_id);
  const bool published = is_published(point);
  contact->unix_name = published ? random_socket_name() : point.name;
  UNISONO_ASSIGN(Listener local, listen_unix(contact->unix_name));
  local.needs_proof = published && point.has_key;
  listeners.push_back(std::move(local));
  if (!published || point.single_host) return listeners;
  UNISONO_ASSIGN(Listener remote, listen_tcp("", 0, point.interface_address));
  std::vector<std::string> hosts{point.interface_address};
  if (point.interface_address.empty()) hosts = local_addresses(remote.is_ipv6);
  if (hosts.size() > kPublishedHostsMax) hosts.resize(kPublishedHostsMax);
  for (std::string& host : hosts) contact->tcp.emplace_back(std::move(host), remote.port);
  listeners.push_back(std::move(remote));
  return listeners;
}

Result<Joined> converse_as_host(ArbiterOptions options, const Applicant& self, TimePoint deadline) {
  const JobKey key = options.key;
  UNISONO_ASSIGN(GuardedFd connection, start_arbiter(std::move(options)));
  auto attempt = converse(ControlStream(std::move(connection)), self, key, deadline);
  if (auto* joined = std::get_if<Joined>(&attempt)) return std::move(*joined);
  return std::get<Failure>(attempt).why;
}

Result<Joined> host(const RendezvousPoint& point, const Applicant& self, TimePoint started,
                    TimePoint deadline) {
  Contact contact;
  contact.job_id = point.kind == RendezvousPoint::Kind::kUniqueId ? point.name : random_id();
  contact.has_key = !point.has_key;
  contact.key = point.has_key ? point.key : JobKey::random();
  end_failed_arbiters(point.store, point.name);
  auto listeners = open_listeners(point, &contact);
  if (!listeners) return cannot_open(point, listeners.error());

  // Who comes before the arbiter runs waits in the backlog.
  if (point.kind == RendezvousPoint::Kind::kFile) {
    UNISONO_TRY(write_contact_file(point.name, contact));
  } else if (point.kind == RendezvousPoint::Kind::kStore) {
    UNISONO_TRY(write_store(point, contact));
  }
  ArbiterOptions options{self.size,
                         point.store,
                         point.name,
                         contact.job_id,
                         std::string(handshake_job_id(point, contact)),
                         contact.key,
                         started,
                         deadline,
                         std::move(*listeners)};
  options.silence = point.silence;
  options.warn_after = point.warn_after;
  options.comes_once = point.comes_once;
  auto joined = converse_as_host(std::move(options), self, deadline);
  // After a failure late ranks must still find the way to its reason.
  if (point.kind == RendezvousPoint::Kind::kFile && joined) {
    remove_contact_file(point.name, contact.job_id);
  }
  return joined;
}

}  // namespace

Result<Joined> join_rendezvous(const RendezvousPoint& point, const Applicant& self,
                               TimePoint deadline) {
  if (point.kind == RendezvousPoint::Kind::kTcp && !point.has_key) {
    return Status(
        ErrorCode::kAuthentication,
        fmt::format("rendezvous at {} needs a job key: set the same UNISONO_JOB_KEY on all "
                    "ranks (openssl rand -hex 32 makes one)",
                    place_text(point)));
  }
  if (point.kind == RendezvousPoint::Kind::kStore && point.store == nullptr) {
    return Status(ErrorCode::kInvalidArgument, "no store was given to meet at");
  }
  // Every other place is told by its user, if only that of a file.
  if (point.kind != RendezvousPoint::Kind::kTcp && !point.within_process) {
    UNISONO_TRY(check_own_user());
  }
  const TimePoint started = Clock::now();
  return self.member.rank == 0 ? host(point, self, started, deadline)
                               : attend(point, self, started, deadline);
}

}  // namespace unisono::rendezvous
