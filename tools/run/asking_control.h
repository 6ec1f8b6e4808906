// The JobControl of the launchers that ask that of node 0: it hears what becomes of their ranks and
// tells them what to do, and what these ask the store it answers. Where it is lost, or this
// launcher was told to end, the ranks go on and none is started again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/sockets/control_stream.h"
#include "tools/run/job_control.h"
#include "tools/run/job_decisions.h"
#include "tools/run/launcher_stream.h"
#include "tools/run/node_options.h"
#include "tools/run/store_server.h"

namespace unisono::run {

class AskingControl final : public JobControl {
 public:
  /// Goes to the launcher of node 0 and waits for it; blocks. `store` outlives it; null: there is
  /// none. An error says why it was not taken in.
  static Result<std::unique_ptr<JobControl>> join(const NodeOptions& options, StoreServer* store);
  AskingControl(const NodeOptions& options, StoreServer* store, rendezvous::ControlStream stream);
  ~AskingControl() override;

  void tell(const Event& event) override;
  std::optional<Order> next_order() override;
  void list_awaited(std::vector<pollfd>* awaited) const override;
  TimePoint next_due() const override { return own_.next_due(); }
  void serve(std::span<const pollfd> happened) override;

 private:
  void hear();
  Status take(const rendezvous::Message& message);
  void on_order(Order order);
  /// `why`: empty where this launcher was told to end.
  void go_alone(const std::string& why);
  void say_what_follows(const std::string& why);

  const JobShape shape_;
  const int node_;
  StoreServer* const store_;
  std::optional<LauncherStream> stream_;  // empty: it goes on alone
  JobDecisions own_;                      // of its ranks, for when it does
  std::deque<Order> orders_;
  std::map<int, Failure> undecided_;  // by rank: what follows has not been said, or done, yet
  bool all_end_ = false;              // its ranks, since all are to start again
  bool is_over_ = false;
};

}  // namespace unisono::run
