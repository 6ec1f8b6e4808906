#include "transports/shm/descriptor_message.h"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/errno_text.h"
#include "base/fnv.h"
#include "base/network.h"

namespace unisono::shm {
namespace {

Status wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    int timeout_ms = -1;
    if (deadline != kNever) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
    }
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) return {};
    if (ready == 0) return Status(ErrorCode::kTimeout, "the deadline passed");
    if (errno != EINTR) return Status(ErrorCode::kSystem, std::strerror(errno));
  }
}

// As many of the user's descriptors are on their way as a process may have open, or the kernel
// lacks memory: it passes when others, of whatever job, have taken theirs, and nobody tells when.
Status wait_for_others(int shortage, TimePoint deadline) {
  if (Clock::now() >= deadline) {
    return Status(ErrorCode::kTimeout,
                  shortage == ETOOMANYREFS
                      ? "too many descriptors of this user are on their way between processes; "
                        "raise the limit of open files (ulimit -n)"
                      : "no memory for a message to a rank of this host: " + errno_text(shortage));
  }
  poll(nullptr, 0, 1);
  return {};
}

// Room for the descriptors of one message, aligned as the kernel wants it.
union ControlBuffer {
  cmsghdr header;
  char bytes[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
};

void take_descriptors(msghdr* message, std::vector<UniqueFd>* descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      descriptors->emplace_back(fd);
    }
  }
}

}  // namespace

std::uint64_t hash_of(const std::string& job_id) { return fnv1a_64(job_id); }

bool wait_readable(int fd, TimePoint deadline) { return wait_for(fd, POLLIN, deadline).ok(); }

Status send_message(int fd, const Message& message, std::span<const int> descriptors,
                    TimePoint deadline) {
  iovec data{const_cast<Message*>(&message), sizeof message};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno == EAGAIN) {
      UNISONO_TRY(wait_for(fd, POLLOUT, deadline));
    } else if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM) {
      UNISONO_TRY(wait_for_others(errno, deadline));
    } else if (errno != EINTR) {
      return Status(ErrorCode::kRankFailed, std::strerror(errno));
    }
  }
}

Result<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors, TimePoint deadline,
                                std::optional<std::uint64_t> job_hash) {
  for (;;) {
    UNISONO_TRY(wait_for(fd, POLLIN, deadline));
    Message message;
    iovec data{&message, sizeof message};
    ControlBuffer control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    const ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // It hung up before it had read all; what it said before is still to be read.
    if (got < 0 && errno == ECONNRESET) continue;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return Status(ErrorCode::kRankFailed, std::strerror(errno));
    // Descriptors can come with no byte at all.
    take_descriptors(&header, descriptors);
    if (got == 0) return Status(ErrorCode::kRankFailed, "the connection was closed");
    const bool whole = got == sizeof message && (header.msg_flags & MSG_TRUNC) == 0;
    if (!whole || message.magic != kDescriptorMessageMagic) {
      return Status(ErrorCode::kProtocol, "not a message with descriptors");
    }
    const bool is_stranger = job_hash.has_value() && message.job_hash != *job_hash;
    if ((header.msg_flags & MSG_CTRUNC) != 0 && !is_stranger) {
      return Status(ErrorCode::kOutOfResources,
                    "no room for a descriptor that came along: " + errno_text(EMFILE));
    }
    message.text[sizeof message.text - 1] = '\0';
    return message;
  }
}

Result<socklen_t> make_address(const std::string& name, sockaddr_un* address) {
  if (const auto bytes = unix_address(name, address)) return *bytes;
  return Status(ErrorCode::kInvalidArgument,
                "a shared memory address has " + std::to_string(name.size()) + " bytes; 1 to " +
                    std::to_string(kSocketNameBytesMax) + " are possible");
}

}  // namespace unisono::shm
