// Replays the plans of all ranks on a network that SimGrid simulates. Prints microseconds.
//
//   replay PLATFORM.xml rank|pair [SimGrid's options] < PLANS.json
//
// PLANS.json is what `unisono plan ... --json` prints. Messages that are ready go one at a time, in
// the order in which they became so,
//   rank: from each rank, as plan::NetworkModel has it;
//   pair: from each rank to each other, as on connections that share the links of both.
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <simgrid/s4u.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

namespace s4u = simgrid::s4u;

// A step; a send and its receive are one, which begins when both may.
struct Step {
  int from = -1;  // -1: nothing is sent
  int to = -1;
  std::uint64_t bytes = 0;
  double latency = 0;     // seconds
  std::size_t place = 0;  // in the sender's plan
  std::size_t waits = 0;
  std::vector<std::size_t> dependants;
};

// Messages that take turns.
struct Lane {
  std::set<std::tuple<double, std::size_t, std::size_t>> ready;  // since when, place, step
  bool is_busy = false;
};

class Replay {
 public:
  Replay(const nlohmann::json& job, bool pairs_take_turns);
  void start();
  bool is_complete() const { return completed_ == steps_.size(); }

 private:
  void read(const nlohmann::json& plan);
  std::size_t index_of(int rank, std::size_t place, const nlohmann::json& step);
  void take_latencies();
  void begin(std::size_t index);
  void serve(Lane& lane);
  void complete(std::size_t index);

  bool pairs_take_turns_;
  std::vector<Step> steps_;
  std::map<std::tuple<int, int, int>, std::size_t> messages_;  // by sender, receiver, number
  std::map<std::pair<int, int>, Lane> lanes_;
  std::vector<s4u::Host*> hosts_;
  std::size_t completed_ = 0;
};

Replay::Replay(const nlohmann::json& job, bool pairs_take_turns)
    : pairs_take_turns_(pairs_take_turns) {
  for (const auto& plan : job.at("plans")) read(plan);
  for (int rank = 0; rank < job.at("ranks"); ++rank) {
    hosts_.push_back(s4u::Host::by_name("rank-" + std::to_string(rank)));
  }
}

std::size_t Replay::index_of(int rank, std::size_t place, const nlohmann::json& step) {
  const std::size_t next = steps_.size();
  if (!step.contains("peer")) {
    steps_.emplace_back();
    return next;
  }
  const int peer = step.at("peer");
  const bool sends = step.at("kind") == "send";
  const int from = sends ? rank : peer;
  const int to = sends ? peer : rank;
  const auto [entry, is_new] = messages_.try_emplace({from, to, step.at("message_index")}, next);
  if (is_new) {
    Step& message = steps_.emplace_back();
    message.from = from;
    message.to = to;
    message.bytes = step.at("bytes");
  }
  if (sends) steps_[entry->second].place = place;
  return entry->second;
}

void Replay::read(const nlohmann::json& plan) {
  std::vector<std::size_t> indices;
  for (const auto& step : plan.at("steps")) {
    indices.push_back(index_of(plan.at("rank"), indices.size(), step));
    for (const std::size_t earlier : step.at("after")) {
      steps_[indices.at(earlier)].dependants.push_back(indices.back());
      ++steps_[indices.back()].waits;
    }
  }
}

// A message would hold its turn while its latency passes, which no link is taken by: the latency is
// waited for when its turn is over.
void Replay::take_latencies() {
  for (Step& step : steps_) {
    if (step.from < 0) continue;
    std::vector<s4u::Link*> links;
    hosts_[static_cast<std::size_t>(step.from)]->route_to(hosts_[static_cast<std::size_t>(step.to)],
                                                          links, &step.latency);
  }
  for (s4u::Link* const link : s4u::Engine::get_instance()->get_all_links()) link->set_latency(0);
}

// Whoever serves the lane begins when all that is ready at this time has been offered.
void Replay::begin(std::size_t index) {
  const Step& step = steps_[index];
  if (step.from < 0) return complete(index);
  Lane& lane = lanes_[{step.from, pairs_take_turns_ ? step.to : -1}];
  lane.ready.emplace(s4u::Engine::get_clock(), step.place, index);
  s4u::Actor::create("lane", hosts_[static_cast<std::size_t>(step.from)],
                     [this, &lane] { serve(lane); });
}

void Replay::serve(Lane& lane) {
  if (lane.is_busy) return;
  lane.is_busy = true;
  while (!lane.ready.empty()) {
    const std::size_t index = std::get<2>(lane.ready.extract(lane.ready.begin()).value());
    const Step& step = steps_[index];
    s4u::Host* const sender = hosts_[static_cast<std::size_t>(step.from)];
    s4u::Comm::sendto(sender, hosts_[static_cast<std::size_t>(step.to)], step.bytes);
    s4u::Actor::create("arrival", sender, [this, index] {
      s4u::this_actor::sleep_for(steps_[index].latency);
      complete(index);
    });
  }
  lane.is_busy = false;
}

void Replay::complete(std::size_t index) {
  ++completed_;
  for (const std::size_t dependant : steps_[index].dependants) {
    if (--steps_[dependant].waits == 0) begin(dependant);
  }
}

void Replay::start() {
  take_latencies();
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].waits == 0) ready.push_back(i);
  }
  for (const std::size_t index : ready) begin(index);
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);  // which takes its own options
  const std::string turns = argc == 3 ? argv[2] : "";
  if (turns != "rank" && turns != "pair") {
    std::fputs("replay: expected PLATFORM.xml and 'rank' or 'pair'\n", stderr);
    return 2;
  }
  engine.load_platform(argv[1]);
  engine.get_netzone_root()->seal();  // routes are asked for before the simulation runs
  Replay replay(nlohmann::json::parse(std::cin), turns == "pair");
  replay.start();
  engine.run();
  if (!replay.is_complete()) {
    std::fputs("replay: some steps wait for ever\n", stderr);
    return 1;
  }
  std::printf("%.6f\n", s4u::Engine::get_clock() * 1e6);
  return 0;
}
