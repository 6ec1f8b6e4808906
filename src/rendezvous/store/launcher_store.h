// The store of `unisono run --max-restarts`, at a rank's end. Each question has a connection of its
// own, so that a rank that dies leaves nothing behind.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/store/store_request.h"
#include "unisono/rendezvous.h"

namespace unisono::rendezvous {

/// What a rank sets once it has met the others of a job whose ranks were started together, after so
/// many restarts: from then on the others can let in again whoever fails.
std::string met_key(int restarts);
/// What a rank that was started alone sets before it waits: the launcher may end it when there is
/// nobody to rejoin.
std::string waiting_key(int rank, int restarts);
/// What a rank sets once it has rejoined, that had been started again as the job's so manieth: the
/// launcher knows then that others may find the job by it.
std::string rejoined_key(int rank, int restarts);

class LauncherStore final : public Store {
 public:
  /// `name` is that of an abstract UNIX socket.
  explicit LauncherStore(std::string name) : name_(std::move(name)) {}

  /// Both throw Error.
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;

 private:
  std::string ask_now(const StoreRequest& request) const;
  Result<std::optional<std::string>> ask(const StoreRequest& request, TimePoint deadline) const;
  Result<std::optional<std::string>> ask_once(const std::string& question,
                                              TimePoint deadline) const;

  std::string name_;
};

}  // namespace unisono::rendezvous
