// A store that processes share: questions and answers take virtual time.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/sim/case.h"
#include "tests/sim/program.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include "unisono/rendezvous.h"

namespace unisono::sim {

class SimulatedStore {
 public:
  /// `passes_at`: as ControlPlane's, between processes.
  SimulatedStore(const StorePlace& place, std::uint64_t seed, Schedule& schedule,
                 std::function<TimePoint(int from, int to)> passes_at)
      : place_(place), random_(seed), schedule_(schedule), passes_at_(std::move(passes_at)) {}

  /// What `process` has of it, whose `program` waits for answers; `wake` has it looked at. Its
  /// functions throw once the program ends, and where the store cannot be reached for long.
  std::unique_ptr<Store> end_for(int process, Program& program, std::function<void()> wake);
  /// Empty: not set.
  std::string value_of(const std::string& key) const;

 private:
  class End;
  struct Question {
    int process;
    std::string answer{};
    bool is_answered = false;
    std::function<void()> wake{};
  };

  Duration delay();
  bool may_be_cut_off() const { return place_.host_of >= 0; }
  /// Between it and `process`; nothing where that cannot reach it.
  void later(int process, std::function<void()> what);
  void set(const std::string& key, const std::string& value);
  void ask(const std::string& key, Duration wait, const std::shared_ptr<Question>& question);
  void answer(const std::shared_ptr<Question>& question, const std::string& value);

  const StorePlace place_;
  Random random_;
  Schedule& schedule_;
  const std::function<TimePoint(int, int)> passes_at_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, std::weak_ptr<Question>> open_;
};

}  // namespace unisono::sim
