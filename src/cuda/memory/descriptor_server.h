// Hands the descriptors of this process's windows to the peers that ask for them: one abstract UNIX
// socket and one thread for all ranks of the process, from the first window on until the last user
// is gone. A peer sends a window's number and gets one descriptor or the reason why not.
//
// Thread rule: any thread; exporters run on the server's own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transports/shm/descriptor_message.h"
#include "transports/shm/shared_segment.h"

namespace unisono::cuda {

class DescriptorServer {
 public:
  using Exporter = std::function<Result<UniqueFd>()>;
  using Existence = std::function<bool()>;

  /// The process's one, started by the first call and ended with the last pointer to it.
  static Result<std::shared_ptr<DescriptorServer>> of_process();
  ~DescriptorServer();
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  /// The socket's name.
  const std::string& address() const { return listener_->address(); }
  /// `exporter` is asked whenever a peer sends the number returned, which is never used again.
  /// `exists`, of what goes without being withdrawn, when a peer asks whether it has gone.
  std::uint64_t offer(Exporter exporter, Existence exists = {});
  /// Afterwards neither of them runs, and who sends the number is refused.
  void withdraw(std::uint64_t id);

 private:
  struct Visitor {
    UniqueFd connection;
    TimePoint patience;
  };

  DescriptorServer() = default;
  Status start();
  void serve();
  void admit();
  void answer(int connection, TimePoint patience);
  void send_descriptor(int connection, std::uint64_t id, TimePoint patience);
  void send_gone(int connection, const shm::Message& question, TimePoint patience);
  Result<UniqueFd> export_of(std::uint64_t id);
  bool is_gone(std::uint64_t id);

  std::unique_ptr<shm::LocalListener> listener_;
  UniqueFd stop_;
  std::vector<Visitor> visitors_;  // the thread's own
  std::mutex mutex_;
  struct Offer {
    Exporter exporter;
    Existence exists;  // empty: it does until it is withdrawn
  };
  std::map<std::uint64_t, Offer> offers_;
  std::thread thread_;
};

/// Asks the server at `address` for window `id`: exactly one descriptor. kRankFailed where nobody
/// listens any more, kTimeout at the deadline, kAuthentication for another user's socket,
/// kInvalidArgument with the server's words where it refuses.
Result<UniqueFd> request_descriptor(const std::string& address, std::uint64_t id,
                                    TimePoint deadline);

/// Windows that can be asked about at once.
inline constexpr std::size_t kAskedMax = 24;
/// Which of the windows the server at `address` does not have any more: a bit for each, the lowest
/// for the first. What the server cannot hand out just now is not gone. Errors as of
/// request_descriptor().
Result<std::uint64_t> request_gone(const std::string& address, std::span<const std::uint64_t> ids,
                                   TimePoint deadline);

}  // namespace unisono::cuda
