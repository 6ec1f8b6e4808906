// The peer's side of descriptor_server.h.
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/errno_text.h"
#include "base/same_user.h"
#include "cuda/memory/descriptor_server.h"
#include "transports/shm/descriptor_message.h"

namespace unisono::cuda {
namespace {

/// A UNIX socket's connect() waits for room in the listener's queue, so it gets a bound as well.
void bound_connect(int fd, TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - Clock::now());
  const std::int64_t us = std::max<std::int64_t>(left.count(), 1);
  const timeval bound{static_cast<time_t>(us / 1'000'000),
                      static_cast<suseconds_t>(us % 1'000'000)};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

Result<UniqueFd> connect_to(const std::string& name, TimePoint deadline) {
  sockaddr_un address;
  UNISONO_ASSIGN(const socklen_t length, shm::make_address(name, &address));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) {
    return Status(ErrorCode::kOutOfResources, "socket: " + errno_text(errno));
  }
  bound_connect(fd.get(), deadline);
  while (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EINTR && Clock::now() < deadline) continue;
    const bool late = errno == EAGAIN || errno == EINTR;
    return Status(late ? ErrorCode::kTimeout : ErrorCode::kRankFailed,
                  "cannot reach the owner at UNIX socket @" + name + ": " + std::strerror(errno));
  }
  UNISONO_TRY(check_same_user(fd.get()));
  return fd;
}

}  // namespace

Result<UniqueFd> request_descriptor(const std::string& address, std::uint64_t id,
                                    TimePoint deadline) {
  UNISONO_ASSIGN(const UniqueFd connection, connect_to(address, deadline));
  shm::Message request;
  request.magic = shm::kDescriptorMessageMagic;
  request.kind = shm::MessageKind::kHello;
  request.job_hash = id;
  UNISONO_TRY(shm::send_message(connection.get(), request, {}, deadline));
  std::vector<UniqueFd> descriptors;
  UNISONO_ASSIGN(const shm::Message reply,
                 shm::receive_message(connection.get(), &descriptors, deadline));
  if (reply.kind == shm::MessageKind::kRefused) {
    return Status(ErrorCode::kInvalidArgument, std::string("the owner refuses: ") + reply.text);
  }
  if (reply.kind != shm::MessageKind::kDescriptors || reply.job_hash != id ||
      descriptors.size() != 1) {
    return Status(ErrorCode::kProtocol,
                  "the owner answered with " + std::to_string(descriptors.size()) +
                      " descriptors for window " + std::to_string(reply.job_hash) + " instead of " +
                      std::to_string(id));
  }
  return std::move(descriptors[0]);
}

Result<std::uint64_t> request_gone(const std::string& address, std::span<const std::uint64_t> ids,
                                   TimePoint deadline) {
  shm::Message question;
  static_assert(kAskedMax * sizeof ids[0] < sizeof question.text);
  UNISONO_ASSERT(ids.size() <= kAskedMax, "so many windows fit into a question");
  UNISONO_ASSIGN(const UniqueFd connection, connect_to(address, deadline));
  question.magic = shm::kDescriptorMessageMagic;
  question.kind = shm::MessageKind::kWhichAreGone;
  question.index = static_cast<std::int32_t>(ids.size());
  if (!ids.empty()) std::memcpy(question.text, ids.data(), ids.size_bytes());
  UNISONO_TRY(shm::send_message(connection.get(), question, {}, deadline));
  std::vector<UniqueFd> unwanted;
  UNISONO_ASSIGN(const shm::Message answer,
                 shm::receive_message(connection.get(), &unwanted, deadline));
  if (answer.kind == shm::MessageKind::kWhichAreGone && unwanted.empty()) return answer.job_hash;
  return Status(ErrorCode::kProtocol, "the owner did not say which windows it has");
}

}  // namespace unisono::cuda
