#include "transports/shm/descriptor_exchange.h"

#include <fcntl.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/per_process.h"
#include "base/same_user.h"

namespace unisono::shm {
namespace {

/// How long one stranger may keep the leader from the next connection.
constexpr auto kHelloPatience = std::chrono::seconds(2);
/// How often who waits asks whether the others are still alive.
constexpr auto kWatchInterval = std::chrono::milliseconds(100);

constinit PerProcess<std::mutex> receiving;

Message message_of(MessageKind kind) {
  Message message;
  message.magic = kDescriptorMessageMagic;
  message.kind = kind;
  return message;
}

bool refuses(const Message& message) {
  return message.kind == MessageKind::kRefused || message.kind == MessageKind::kLost;
}

std::string name_of_rank(Rank rank) { return "rank " + std::to_string(rank); }

}  // namespace

// Who has left has met all the others: nobody but the leader, which all have to meet, waits for it.
Status DescriptorExchange::ask_watch() const {
  if (!peers_.watch) return {};
  Status lost = peers_.watch();
  return !leads() && lost.code() == ErrorCode::kRankLeft ? Status() : lost;
}

Result<bool> DescriptorExchange::await(int fd, TimePoint until) const {
  while (!wait_readable(fd, std::min(until, Clock::now() + kWatchInterval))) {
    if (const Status lost = ask_watch(); !lost) {
      if (wait_readable(fd, Clock::now())) return true;
      return lost;
    }
    if (Clock::now() >= until) return false;
  }
  return true;
}

// Who has hung up may have said why.
Status DescriptorExchange::say(int to, const Message& message, std::span<const int> descriptors) {
  const int link = links_[static_cast<std::size_t>(to)].get();
  const auto send = [&] {
    const TimePoint look = std::min(deadline_, Clock::now() + kWatchInterval);
    return send_message(link, message, descriptors, look);
  };
  Status sent = send();
  while (sent.code() == ErrorCode::kTimeout && Clock::now() < deadline_) {
    UNISONO_TRY(ask_watch());
    sent = send();
  }
  if (sent.code() != ErrorCode::kRankFailed) return sent;
  std::vector<UniqueFd> none;
  const Result<Message> last = receive_message(link, &none, Clock::now());
  if (last && refuses(*last)) return refusal(to, *last);
  return Status(sent.code(), name_of_rank(world_rank(to)) + ": " + sent.message(), world_rank(to));
}

// Errors name the rank, or whom it refuses for.
Result<Message> DescriptorExchange::expect(int from, MessageKind kind,
                                           std::vector<UniqueFd>* descriptors) {
  const int link = links_[static_cast<std::size_t>(from)].get();
  const Rank rank = world_rank(from);
  Result<Message> message = receive_message(link, descriptors, deadline_);
  if (!message) {
    const Status& error = message.error();
    if (error.code() == ErrorCode::kOutOfResources) return error;  // of this rank
    return Status(error.code(), name_of_rank(rank) + ": " + error.message(), rank);
  }
  if (refuses(*message)) return refusal(from, *message);
  if (message->kind != kind) {
    return Status(
        ErrorCode::kProtocol,
        name_of_rank(rank) + ": an unexpected message while the ranks of a host share memory",
        rank);
  }
  return message;
}

// Of the rank that it names; who says it may pass it on.
Status DescriptorExchange::refusal(int from, const Message& told) const {
  const bool is_named = told.index >= 0 && told.index < size();
  const bool is_lost = told.kind == MessageKind::kLost;
  return Status(is_lost ? ErrorCode::kRankFailed : ErrorCode::kSystem, told.text,
                world_rank(is_named ? told.index : from));
}

Status DescriptorExchange::missing(const char* what) const {
  std::string names;
  Rank first = -1;
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (!waiting_for_[index]) continue;
    if (first < 0) first = peers_.world_ranks[index];
    names += (names.empty() ? "" : ", ") + std::to_string(peers_.world_ranks[index]);
  }
  return Status(ErrorCode::kTimeout,
                std::string("rank ") + names + " of this host did not " + what +
                    " within the deadline; see whether it runs, or raise UNISONO_TIMEOUT",
                first);
}

Status DescriptorExchange::gather(LocalListener& listener, int own_heap) {
  heaps_.resize(static_cast<std::size_t>(size()));
  links_.resize(leads() ? static_cast<std::size_t>(size()) : 1);
  waiting_for_.assign(static_cast<std::size_t>(size()), false);
  if (!leads()) {
    UNISONO_TRY(connect_to_leader());
    return say_hello(own_heap);
  }
  UniqueFd own(fcntl(own_heap, F_DUPFD_CLOEXEC, 0));
  if (!own) return Status(ErrorCode::kOutOfResources, errno_text(errno));
  UNISONO_ASSIGN(heaps_[0], keep_once(std::move(own)));
  return accept_all(listener);
}

Status DescriptorExchange::await_connection(LocalListener& listener) const {
  UNISONO_ASSIGN(const bool came, await(listener.fd(), deadline_));
  return came ? Status() : missing("come to share memory");
}

Status DescriptorExchange::accept_all(LocalListener& listener) {
  waiting_for_.assign(static_cast<std::size_t>(size()), true);
  waiting_for_[0] = false;
  bool warned = false;
  // Also where one has declined: who comes after it is told, too.
  while (std::find(waiting_for_.begin(), waiting_for_.end(), true) != waiting_for_.end()) {
    if (Status came = await_connection(listener); !came) return declined_.ok() ? came : declined_;
    UniqueFd connection(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection && (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED)) continue;
    if (!connection) {
      return Status(ErrorCode::kOutOfResources,
                    "cannot accept the ranks of this host: " + errno_text(errno));
    }
    const Status hello = accept_hello(std::move(connection));
    // It was one of ours, and will not come again.
    if (hello.code() == ErrorCode::kOutOfResources) return hello;
    if (hello) continue;
    if (const Status lost = ask_watch(); !lost) return declined_.ok() ? lost : declined_;
    if (!warned) {
      log::warning("refused a connection of a stranger to shared memory: " + hello.message());
      warned = true;
    }
  }
  return declined_;
}

Status DescriptorExchange::accept_hello(UniqueFd connection) {
  UNISONO_TRY(check_same_user(connection.get()));
  std::vector<UniqueFd> descriptors;
  const TimePoint patience = std::min(deadline_, Clock::now() + kHelloPatience);
  UNISONO_TRY(await(connection.get(), patience).status());
  const std::uint64_t job_hash = hash_of(peers_.job_id);
  UNISONO_ASSIGN(const Message hello,
                 receive_message(connection.get(), &descriptors, patience, job_hash));
  if (hello.job_hash != job_hash) {
    return Status(ErrorCode::kMismatch, "it belongs to another job");
  }
  const bool known = hello.index > 0 && hello.index < size() &&
                     waiting_for_[static_cast<std::size_t>(hello.index)];
  if (known && refuses(hello)) {
    declined_ = refusal(hello.index, hello);
    waiting_for_[static_cast<std::size_t>(hello.index)] = false;
    return {};
  }
  if (!known || hello.kind != MessageKind::kHello || descriptors.size() != 1) {
    return Status(ErrorCode::kProtocol, "local index " + std::to_string(hello.index) + " with " +
                                            std::to_string(descriptors.size()) +
                                            " descriptors was not expected");
  }
  const auto index = static_cast<std::size_t>(hello.index);
  UNISONO_ASSIGN(heaps_[index], keep_once(std::move(descriptors[0])));
  links_[index] = std::move(connection);
  waiting_for_[index] = false;
  return {};
}

Status DescriptorExchange::connect_to_leader() {
  waiting_for_[0] = true;
  sockaddr_un address;
  UNISONO_ASSIGN(const socklen_t length, make_address(peers_.addresses[0], &address));
  UniqueFd link(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!link) return Status(ErrorCode::kOutOfResources, "socket: " + errno_text(errno));
  while (connect(link.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EINTR) continue;
    return Status(ErrorCode::kSystem,
                  "cannot reach rank " + std::to_string(peers_.world_ranks[0]) +
                      " over a UNIX socket: " + std::strerror(errno) +
                      "; containers must share their network namespace to share memory",
                  peers_.world_ranks[0]);
  }
  UNISONO_TRY(check_same_user(link.get()));
  links_[0] = std::move(link);
  return {};
}

Status DescriptorExchange::say_hello(int own_heap) {
  Message hello = message_of(MessageKind::kHello);
  hello.index = peers_.self;
  hello.job_hash = hash_of(peers_.job_id);
  return say(0, hello, std::span(&own_heap, 1));
}

void DescriptorExchange::decline(const Status& cause) {
  // The leader's listener closes with it: who comes then sees that.
  if (leads()) return;
  links_.resize(1);
  waiting_for_.assign(static_cast<std::size_t>(size()), false);
  if (!connect_to_leader()) return;
  refuse(cause);
}

Status DescriptorExchange::share(int own_segment, UniqueFd* received_segment) {
  return leads() ? send_all(own_segment) : receive_all(received_segment);
}

Status DescriptorExchange::send_all(int own_segment) {
  std::vector<int> all{own_segment};
  for (const PeerMemfd& heap : heaps_) all.push_back(heap->get());
  for (int i = 1; i < size(); ++i) {
    for (std::size_t at = 0; at < all.size(); at += kDescriptorsPerMessage) {
      const std::size_t count = std::min(kDescriptorsPerMessage, all.size() - at);
      UNISONO_TRY(say(i, message_of(MessageKind::kDescriptors),
                      std::span<const int>(all).subspan(at, count)));
    }
  }
  return {};
}

Status DescriptorExchange::receive_all(UniqueFd* segment) {
  // Descriptors come in order: the segment's, then one for each heap.
  for (std::size_t known = 0; known < heaps_.size() + 1;) {
    UNISONO_ASSIGN(const bool came, await(links_[0].get(), deadline_));
    if (!came) return missing("share its memory");
    UNISONO_ASSIGN(const std::size_t more, receive_some(known, segment));
    known += more;
  }
  return {};
}

Result<std::size_t> DescriptorExchange::receive_some(std::size_t known, UniqueFd* segment) {
  // Ranks that are threads receive one after the other, so that what they have twice is closed
  // before the next message: together they would hold as many descriptors as the square of their
  // number.
  const std::lock_guard lock(receiving.get());
  std::vector<UniqueFd> received;
  UNISONO_TRY(expect(0, MessageKind::kDescriptors, &received).status());
  if (received.empty() || known + received.size() > heaps_.size() + 1) {
    return Status(ErrorCode::kProtocol, "a wrong number of descriptors");
  }
  const std::size_t count = received.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (known + i == 0) {
      *segment = std::move(received[i]);
    } else {
      UNISONO_ASSIGN(heaps_[known + i - 1], keep_once(std::move(received[i])));
    }
  }
  return count;
}

Status DescriptorExchange::barrier() {
  std::vector<UniqueFd> none;
  const Message token = message_of(MessageKind::kBarrier);
  const int first = leads() ? 1 : 0;
  const int last = leads() ? size() : 1;
  if (!leads()) UNISONO_TRY(say(0, token, {}));
  for (int i = first; i < last; ++i) {
    waiting_for_.assign(static_cast<std::size_t>(size()), false);
    waiting_for_[static_cast<std::size_t>(i)] = true;
    UNISONO_ASSIGN(const bool came, await(links_[static_cast<std::size_t>(i)].get(), deadline_));
    if (!came) return missing("finish sharing memory");
    UNISONO_TRY(expect(i, MessageKind::kBarrier, &none).status());
  }
  // All have come, and are told so also where one has died since: after the last barrier those who
  // know of its death and those who do not have the same memory.
  for (int i = 1; leads() && i < size(); ++i) {
    static_cast<void>(
        send_message(links_[static_cast<std::size_t>(i)].get(), token, {}, deadline_));
  }
  return {};
}

void DescriptorExchange::refuse(const Status& cause) {
  const auto& ranks = peers_.world_ranks;
  const auto named = std::find(ranks.begin(), ranks.end(), cause.rank()) - ranks.begin();
  const bool is_others = named < size() && named != peers_.self;
  const std::string own = name_of_rank(world_rank(peers_.self)) + " has no shared memory: ";
  const bool is_lost = cause.code() == ErrorCode::kRankFailed;
  Message message = message_of(is_lost ? MessageKind::kLost : MessageKind::kRefused);
  message.index = is_others ? static_cast<std::int32_t>(named) : peers_.self;
  message.job_hash = hash_of(peers_.job_id);
  std::snprintf(message.text, sizeof message.text, "%s%s", is_others ? "" : own.c_str(),
                cause.message().c_str());
  // Best effort: a peer that cannot be told sees the connection close.
  for (const UniqueFd& link : links_) {
    if (link && !send_message(link.get(), message, {}, Clock::now())) continue;
  }
}

}  // namespace unisono::shm
