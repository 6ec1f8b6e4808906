// The JobControl of a launcher that decides: for its own ranks, or as that of node 0 for the ranks
// of all nodes, whose launchers come to it, prove that they know the job's key and are told. They
// are heard by TCP: one whose machine vanishes counts as lost within some 15 s.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/arbiter/strangers.h"
#include "rendezvous/sockets/sockets.h"
#include "tools/run/job_control.h"
#include "tools/run/job_decisions.h"
#include "tools/run/launcher_stream.h"
#include "tools/run/node_options.h"
#include "tools/run/store_server.h"

namespace unisono::run {

class DecidingControl final : public JobControl {
 public:
  /// Decides for its own ranks. `store` outlives it; null: there is none.
  DecidingControl(JobDecisions::Setup setup, StoreServer* store);
  /// As the launcher of node 0: listens for the others.
  static Result<std::unique_ptr<JobControl>> listen(JobDecisions::Setup setup, StoreServer* store,
                                                    const NodeOptions& options);
  ~DecidingControl() override;

  void tell(const Event& event) override { decisions_.on_event(self_, event); }
  std::optional<Order> next_order() override;
  void list_awaited(std::vector<pollfd>* awaited) const override;
  TimePoint next_due() const override;
  void serve(std::span<const pollfd> happened) override;

 private:
  using Arrival = rendezvous::Strangers::Arrival;
  struct Door {
    rendezvous::Listener listener;
    rendezvous::Strangers strangers;
  };

  void open(const NodeOptions& options, rendezvous::Listener listener);
  void serve_door(std::span<const pollfd> happened);
  void on_arrival(Arrival arrival);
  Status admit(const Arrival& arrival) const;
  void refuse(Arrival arrival, const Status& why);
  void serve_peers(std::span<const pollfd> happened);
  Status take(int node, const rendezvous::Message& message);
  void send(int node, std::string bytes);

  const int self_;
  const JobShape shape_;
  JobDecisions decisions_;
  StoreServer* const store_;
  std::optional<Door> door_;                            // while launchers may come
  std::map<int, LauncherStream> peers_;                 // by node
  std::optional<std::pair<int, std::string>> refused_;  // the last one: its node, and why
};

}  // namespace unisono::run
