// One datagram of the descriptor exchange, with descriptors; blocking with a deadline.
// Thread rule: free functions.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::shm {

enum class MessageKind : std::uint32_t {
  kHello = 1,
  kDescriptors,
  kBarrier,
  kRefused,
  kWhichAreGone,  ///< of device memory: a question and its answer (cuda/memory)
  kLost,          ///< as kRefused, because that rank has failed
};

struct Message {
  std::uint64_t magic = 0;
  MessageKind kind = MessageKind::kHello;
  /// kHello: the sender's local index; kRefused, kLost: whose fault it is.
  std::int32_t index = -1;
  std::uint64_t job_hash = 0;  ///< kHello, kRefused, kLost
  char text[200] = {};         ///< kRefused, kLost: why; receive_message() ends it by 0
};

inline constexpr std::uint64_t kDescriptorMessageMagic = 0x3174'6565'6d75'6e75;
/// Linux takes at most 253 descriptors in one message.
inline constexpr std::size_t kDescriptorsPerMessage = 64;

/// FNV-1a: tells jobs apart that got hold of a wrong address. Not a secret.
std::uint64_t hash_of(const std::string& job_id);

/// Waits until `fd` is readable: false at the deadline.
bool wait_readable(int fd, TimePoint deadline);
Status send_message(int fd, const Message& message, std::span<const int> descriptors,
                    TimePoint deadline);
/// Errors: kTimeout, kRankFailed (closed), kProtocol, kOutOfResources: there is no room for a
/// descriptor. Where `job_hash` is given that is none of a message of another job, which may lack
/// some. `descriptors` get close-on-exec.
Result<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors, TimePoint deadline,
                                std::optional<std::uint64_t> job_hash = {});

/// An abstract address: no file, gone with the socket.
Result<socklen_t> make_address(const std::string& name, sockaddr_un* address);

}  // namespace unisono::shm
