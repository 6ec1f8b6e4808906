// The connection between two launchers, once both have proved that they know the job's key.
//
// Thread rule: one thread; nothing here blocks.
#pragma once

#include <poll.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "rendezvous/sockets/control_stream.h"
#include "tools/run/store_values.h"

namespace unisono::run {

class LauncherStream {
 public:
  /// What the other one may leave unread: what all ranks ask the store, or the answers.
  static constexpr std::size_t kUnreadBytesMax = StoreValues::kBytesMax;

  explicit LauncherStream(rendezvous::ControlStream stream) : stream_(std::move(stream)) {}

  int fd() const { return stream_.fd(); }
  pollfd awaited() const;
  /// False where too much is unread: it is lost then, which hear() says.
  bool send(std::string bytes);
  /// Hands over the messages that have come. The first error of `take`, or kRankFailed: the other
  /// launcher is lost, and how.
  template <typename Take>
  Status hear(const Take& take) {
    const bool is_open = receive();
    for (;;) {
      UNISONO_ASSIGN(const auto message, stream_.next());
      if (!message) return is_open ? Status() : loss();
      UNISONO_TRY(take(*message));
    }
  }
  void close() { stream_.close(); }

 private:
  bool receive();
  Status loss() const;

  rendezvous::ControlStream stream_;
};

}  // namespace unisono::run
