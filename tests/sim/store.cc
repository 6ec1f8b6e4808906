#include "tests/sim/store.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace unisono::sim {
namespace {

// Who is not answered then takes its connection for dead.
constexpr Duration kGivesUp = std::chrono::seconds(3);

}  // namespace

class SimulatedStore::End final : public Store {
 public:
  End(SimulatedStore& store, int process, Program& program, std::function<void()> wake)
      : store_(store), process_(process), program_(program), wake_(std::move(wake)) {}

  void set(std::string_view key, std::string_view value) override {
    ask(Duration::zero(), [name = std::string(key), text = std::string(value)](
                              SimulatedStore& store, const std::shared_ptr<Question>& question) {
      store.set(name, text);
      store.answer(question, "");
    });
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return ask(timeout, [name = std::string(key), timeout](
                            SimulatedStore& store, const std::shared_ptr<Question>& question) {
      store.ask(name, timeout, question);
    });
  }

 private:
  template <typename What>
  std::string ask(Duration wait, What what) {
    const auto question = std::make_shared<Question>(Question{process_});
    question->wake = wake_;
    if (!program_.is_ending()) {
      store_.later(process_, [&store = store_, question, what] { what(store, question); });
    }
    const TimePoint until =
        store_.may_be_cut_off() ? store_.schedule_.now() + wait + kGivesUp : kNever;
    if (!program_.wait_until([&] { return question->is_answered; }, until)) {
      throw std::runtime_error("the process has ended, or the store cannot be reached");
    }
    return question->answer;
  }

  SimulatedStore& store_;
  const int process_;
  Program& program_;
  const std::function<void()> wake_;
};

std::unique_ptr<Store> SimulatedStore::end_for(int process, Program& program,
                                               std::function<void()> wake) {
  return std::make_unique<End>(*this, process, program, std::move(wake));
}

std::string SimulatedStore::value_of(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

Duration SimulatedStore::delay() {
  return random_.up_to(random_.one_in(place_.late_one_in) ? place_.late : place_.most);
}

void SimulatedStore::later(int process, std::function<void()> what) {
  const Duration takes = delay();
  const TimePoint passes = may_be_cut_off() ? passes_at_(process, place_.host_of) : TimePoint();
  if (passes == kNever) return;
  schedule_.at(std::max(schedule_.now(), passes) + takes, std::move(what));
}

void SimulatedStore::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  const auto [first, last] = open_.equal_range(key);
  for (auto each = first; each != last; ++each) {
    if (const auto question = each->second.lock()) answer(question, value);
  }
  open_.erase(first, last);
}

void SimulatedStore::ask(const std::string& key, Duration wait,
                         const std::shared_ptr<Question>& question) {
  const auto found = values_.find(key);
  if (found != values_.end()) return answer(question, found->second);
  open_.emplace(key, question);
  schedule_.in(wait, [this, question] { answer(question, ""); });
}

// The first answer counts.
void SimulatedStore::answer(const std::shared_ptr<Question>& question, const std::string& value) {
  if (question->wake == nullptr) return;
  const int process = question->process;
  later(process, [question, value, wake = std::exchange(question->wake, nullptr)] {
    question->answer = value;
    question->is_answered = true;
    wake();
  });
}

}  // namespace unisono::sim
