// How a rank becomes part of a job; shared by init() and spawn().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator_state.h"
#include "comm/runtime.h"
#include "unisono/communicator.h"

namespace unisono {

/// The only door from the rest of the library into a Communicator.
struct CommunicatorAccess {
  static Communicator make(std::shared_ptr<detail::CommunicatorState> state) {
    return Communicator(std::move(state));
  }
  static detail::CommunicatorState* state(Communicator& communicator) {
    return communicator.state_.get();
  }
  /// A second communicator of the same state: the first of the two that goes closes it.
  static Communicator share(const Communicator& communicator) {
    return Communicator(communicator.state_);
  }
};

/// Meets and makes the communicator of all ranks, and tells the launcher. Throws Error.
Communicator join_job(RuntimeOptions options, const char* operation = "init");

namespace detail {

/// A rank's place in a job that meets in a store.
struct StorePlace {
  Store& store;
  std::string name;
  Rank rank = 0;
  int size = 1;
  std::function<Status()> go_on{};  ///< as in RendezvousPoint
  bool comes_once = false;          ///< likewise
  bool is_newcomer = false;         ///< likewise
};
/// Meets at `place` until `deadline`; `device` as InitOptions::device.
Result<std::shared_ptr<CommunicatorState>> join_at_store(Config config, int device,
                                                         const StorePlace& place,
                                                         TimePoint deadline);
/// The environment's configuration with what `options` say beside it. kInvalidArgument where they
/// say where the ranks meet, which the arguments of `operation` do.
Result<Config> config_to_join(const InitOptions& options, const char* operation);
/// Meets and makes the communicator of all ranks.
Result<std::shared_ptr<CommunicatorState>> join_world(RuntimeOptions options);

}  // namespace detail

}  // namespace unisono
