#include "tests/support/rank_job.h"

#include <gtest/gtest.h>

namespace unisono::test {

void Complaints::add(Rank rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  ++count_;
  if (shown_.size() < kShownMax) shown_.push_back("rank " + std::to_string(rank) + ": " + text);
}

void Complaints::report(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  for (const std::string& text : shown_) ADD_FAILURE() << job << ", " << text;
  if (count_ > shown_.size()) {
    ADD_FAILURE() << job << ": " << count_ - shown_.size() << " more";
  }
}

bool Complaints::none() const {
  const std::lock_guard lock(mutex_);
  return count_ == 0;
}

void run_ranks(int ranks, const std::string& transport,
               const std::function<void(Communicator&)>& body) {
  try {
    spawn(ranks, body, {.transport = transport, .timeout = kCallTimeout});
  } catch (const std::exception& error) {
    ADD_FAILURE() << ranks << " ranks over " << transport << ": " << error.what();
  }
}

void spawn_processes(int ranks, const std::string& transport,
                     const std::function<void(Communicator&)>& body) {
  try {
    spawn(ranks, body,
          {.as = SpawnOptions::As::kProcesses, .transport = transport, .timeout = kCallTimeout});
  } catch (const Error& error) {
    ADD_FAILURE() << ranks << " processes over " << transport << ": " << error.what();
  }
}

}  // namespace unisono::test
