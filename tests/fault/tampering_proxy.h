// A proxy between ranks that are threads of this process: it takes the place of every TCP
// connection that one dials, passes bytes on, and does one thing to those of one link.
// Thread rule: any thread; at most one of them exists at a time.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "unisono/types.h"

namespace unisono::test {

enum class Tampering : std::uint8_t {
  kFlip,    ///< one bit
  kCut,     ///< the connection ends there
  kLose,    ///< some bytes are left out
  kRepeat,  ///< some come twice
  kSwap,    ///< some overtake others
  kDelay,   ///< all that follows comes later
};

struct Tamper {
  Tampering how = Tampering::kFlip;
  Rank from = 0;
  Rank to = 1;
  std::uint64_t at = 0;  ///< of the bytes that go this way over the connection
  unsigned bit = 0;
};

class TamperingProxy {
 public:
  explicit TamperingProxy(const Tamper& plan);
  ~TamperingProxy();
  TamperingProxy(const TamperingProxy&) = delete;

  /// Each rank says so first of all, on the thread that it calls on.
  void this_thread_is(Rank rank);
  /// The plan was carried out.
  bool has_struck() const { return struck_; }

  // In the C library's place.
  void note_listener(int fd);
  int connect(int fd, const sockaddr* address, socklen_t bytes);

 private:
  struct Route {
    std::thread::id from, to;
    sockaddr_storage target{};
  };
  struct Flow;

  void run();
  void accept();
  bool is_planned(const Flow& flow);
  void tamper(Flow* flow);

  const Tamper plan_;
  std::atomic<bool> struck_{false}, ends_{false};
  UniqueFd listener_;
  sockaddr_storage address_{};
  std::mutex mutex_;
  std::map<std::uint16_t, std::thread::id> listening_;  // whose port it is
  std::map<std::uint16_t, Route> routes_;               // by the dialling end's port
  std::map<std::thread::id, Rank> ranks_;
  std::vector<std::unique_ptr<Flow>> flows_;  // the thread's
  std::thread thread_;
};

}  // namespace unisono::test
