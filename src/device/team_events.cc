#include "device/team_events.h"

#include <map>

namespace unisono::device {

std::shared_ptr<TeamEvents> TeamEvents::join(std::shared_ptr<const cuda::CudaApi> api,
                                             const std::string& name, int ranks) {
  static std::mutex mutex;
  static auto* const teams = new std::map<std::string, std::weak_ptr<TeamEvents>>;
  const std::lock_guard guard(mutex);
  std::erase_if(*teams, [](const auto& team) { return team.second.expired(); });
  std::weak_ptr<TeamEvents>& known = (*teams)[name];
  std::shared_ptr<TeamEvents> team = known.lock();
  if (team == nullptr) {
    team.reset(new TeamEvents(std::move(api), ranks));
    known = team;
  }
  return team;
}

TeamEvents::TeamEvents(std::shared_ptr<const cuda::CudaApi> api, int ranks)
    : api_(std::move(api)),
      events_(static_cast<std::size_t>(ranks)),
      abort_words_(events_.size()) {}

TeamEvents::~TeamEvents() {
  for (CUevent event : events_) {
    if (event != nullptr) api_->EventDestroy(event);
  }
}

Result<CUevent> TeamEvents::event_of(Rank rank) {
  const std::lock_guard guard(mutex_);
  CUevent& event = events_[static_cast<std::size_t>(rank)];
  if (event == nullptr) {
    UNISONO_TRY(api_->check(api_->EventCreate(&event, CU_EVENT_DISABLE_TIMING),
                            "making an event of rank " + std::to_string(rank)));
  }
  return event;
}

CUevent TeamEvents::known_event_of(Rank rank) {
  const std::lock_guard guard(mutex_);
  return events_[static_cast<std::size_t>(rank)];
}

Result<const std::uint32_t*> TeamEvents::abort_word_of(Rank rank, const Device& device) {
  const std::lock_guard guard(mutex_);
  AbortWord& word = abort_words_[static_cast<std::size_t>(rank)];
  if (word.address() == nullptr) {
    UNISONO_ASSIGN(word, AbortWord::take(device.share()));
    if (is_aborted_) word.set();
  }
  return word.address();
}

void TeamEvents::abort() {
  const std::lock_guard guard(mutex_);
  is_aborted_ = true;
  for (AbortWord& word : abort_words_) word.set();
}

}  // namespace unisono::device
