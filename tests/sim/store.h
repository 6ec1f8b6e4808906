// A store that processes share: questions and answers take virtual time.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/case.h"
#include "tests/sim/program.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include "unisono/rendezvous.h"

namespace unisono::sim {

class SimulatedStore {
 public:
  SimulatedStore(const StoreDelays& delays, std::uint64_t seed, Schedule& schedule)
      : delays_(delays), random_(seed), schedule_(schedule) {}

  /// What one process has of it, whose `program` waits for answers; `wake` has it looked at. Its
  /// functions throw once the program ends.
  std::unique_ptr<Store> end_for(Program& program, std::function<void()> wake);
  /// Of the keys that begin so.
  std::vector<std::string> values_of(const std::string& prefix) const;

 private:
  class End;
  struct Question {
    std::string answer;
    bool is_answered = false;
    std::function<void()> wake;
  };

  Duration delay();
  void set(const std::string& key, const std::string& value);
  void ask(const std::string& key, Duration wait, const std::shared_ptr<Question>& question);
  void answer(const std::shared_ptr<Question>& question, const std::string& value);

  const StoreDelays delays_;
  Random random_;
  Schedule& schedule_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, std::weak_ptr<Question>> open_;
};

}  // namespace unisono::sim
