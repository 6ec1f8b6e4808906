// A rank's control connection once all have met. What the arbiter says is read by the control
// thread and waits here until the rank looks; reports go out at once, from the thread that makes
// them.
//
// Thread rule: any thread; stop() and the destructor once.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/control_stream.h"
#include "rendezvous/control_thread.h"
#include "rendezvous/failure_decider.h"
#include "rendezvous/shrink_message.h"

namespace unisono::rendezvous {

/// What an arbiter has said that its rank has not looked at.
struct ArbiterNews {
  std::vector<FailureDecision> decisions;
  std::vector<std::uint32_t> questions;  ///< communicators whose calls it asks for
  std::vector<ShrinkMessage> shrink_words;
  bool asks_for_waits = false;
};

class ControlConnection final : public ControlClient {
 public:
  /// `world` outlives it.
  ControlConnection(ControlStream joined, const World& world);
  ~ControlConnection() override;

  /// Has the control thread read. kOutOfResources without one.
  Status start();

  /// One load: no lock, no system call.
  bool has_news() const { return has_news_.load(std::memory_order_acquire); }
  ArbiterNews take_news();
  /// Does what the control thread is about to do.
  void catch_up();

  /// Nobody answers any more.
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }

  /// A whole message to the arbiter; dropped where there is none.
  void report(std::string bytes);
  void report_broken_link(Rank peer, const Status& cause);
  /// Says goodbye. Idempotent.
  void leave();

  // ControlClient
  void list_awaited(std::vector<pollfd>* awaited) override;
  TimePoint next_due() override { return kNever; }
  void serve(std::span<const pollfd> happened, TimePoint now) override;

 private:
  enum class State : std::uint8_t { kOpen, kFarewell, kLost, kLeft };

  // All of these under the mutex.
  /// True where the rest waits for room in the socket.
  bool send(std::string bytes);
  void read();
  void take(const Message& message);
  void deliver(FailureDecision decision);
  /// What this rank says about rank 0 when its arbiter is gone or talks nonsense.
  void lose(ErrorCode code, const char* how);
  void change(State state) {
    state_ = state;
    is_lost_.store(state != State::kOpen, std::memory_order_relaxed);
  }
  void note_news() { has_news_.store(true, std::memory_order_release); }

  const World& world_;
  std::atomic<bool> has_news_{false};
  std::atomic<bool> is_lost_{false};
  std::mutex mutex_;
  ControlStream stream_;
  State state_ = State::kOpen;
  DecisionLedger ledger_;
  ArbiterNews news_;
};

}  // namespace unisono::rendezvous
