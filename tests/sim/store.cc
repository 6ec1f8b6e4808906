#include "tests/sim/store.h"

#include <stdexcept>
#include <utility>

namespace unisono::sim {

class SimulatedStore::End final : public Store {
 public:
  End(SimulatedStore& store, Program& program, std::function<void()> wake)
      : store_(store), program_(program), wake_(std::move(wake)) {}

  void set(std::string_view key, std::string_view value) override {
    ask([name = std::string(key), text = std::string(value)](
            SimulatedStore& store, const std::shared_ptr<Question>& question) {
      store.set(name, text);
      store.answer(question, "");
    });
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return ask([name = std::string(key), timeout](SimulatedStore& store,
                                                  const std::shared_ptr<Question>& question) {
      store.ask(name, timeout, question);
    });
  }

 private:
  template <typename What>
  std::string ask(What what) {
    const auto question = std::make_shared<Question>();
    question->wake = wake_;
    if (!program_.is_ending()) {
      store_.schedule_.in(store_.delay(),
                          [&store = store_, question, what] { what(store, question); });
    }
    if (!program_.wait_until([&] { return question->is_answered; })) {
      throw std::runtime_error("the process has ended");
    }
    return question->answer;
  }

  SimulatedStore& store_;
  Program& program_;
  const std::function<void()> wake_;
};

std::unique_ptr<Store> SimulatedStore::end_for(Program& program, std::function<void()> wake) {
  return std::make_unique<End>(*this, program, std::move(wake));
}

std::vector<std::string> SimulatedStore::values_of(const std::string& prefix) const {
  std::vector<std::string> values;
  for (auto each = values_.lower_bound(prefix);
       each != values_.end() && each->first.starts_with(prefix); ++each) {
    values.push_back(each->second);
  }
  return values;
}

Duration SimulatedStore::delay() {
  return random_.up_to(random_.one_in(delays_.late_one_in) ? delays_.late : delays_.most);
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
  schedule_.in(delay(), [question, value, wake = std::exchange(question->wake, nullptr)] {
    question->answer = value;
    question->is_answered = true;
    wake();
  });
}

}  // namespace unisono::sim
