#include "cuda/synchronisation/team_events.h"

#include <atomic>
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
      launching_(events_.size()),
      shares_(events_.size()) {}

TeamEvents::~TeamEvents() {
  for (const auto* const events : {&events_, &more_events_}) {
    for (CUevent event : *events) {
      if (event != nullptr) api_->EventDestroy(event);
    }
  }
  if (abort_word_ != nullptr) word_owner_->give_back_word(abort_word_);
}

Result<CUevent> TeamEvents::event_of(Rank rank, const Device& device) {
  const std::lock_guard guard(mutex_);
  CUevent& event = events_[static_cast<std::size_t>(rank)];
  if (event == nullptr) {
    shares_[static_cast<std::size_t>(rank)] = device.share();
    UNISONO_TRY(api_->check(api_->EventCreate(&event, CU_EVENT_DISABLE_TIMING),
                            "making an event of rank " + std::to_string(rank)));
  }
  return event;
}

Result<CUevent> TeamEvents::new_event(const Device& device) {
  CUevent event = nullptr;
  UNISONO_TRY(api_->check(api_->EventCreate(&event, CU_EVENT_DISABLE_TIMING),
                          "making an event on " + device.name()));
  const std::lock_guard guard(mutex_);
  more_events_.push_back(event);
  shares_.push_back(device.share());
  return event;
}

CUevent TeamEvents::known_event_of(Rank rank) {
  const std::lock_guard guard(mutex_);
  return events_[static_cast<std::size_t>(rank)];
}

void TeamEvents::note(Rank rank, bool launches) {
  const std::lock_guard guard(mutex_);
  launching_[static_cast<std::size_t>(rank)] = launches;
}

bool TeamEvents::is_launching(Rank rank) {
  const std::lock_guard guard(mutex_);
  return launching_[static_cast<std::size_t>(rank)];
}

Result<const std::uint32_t*> TeamEvents::abort_word(const Device& device) {
  const std::lock_guard guard(mutex_);
  if (abort_word_ == nullptr) {
    UNISONO_ASSIGN(abort_word_, device.share()->take_word());
    word_owner_ = device.share();
    *abort_word_ = is_aborted_ ? 1 : 0;
  }
  return abort_word_;
}

void TeamEvents::abort() {
  const std::lock_guard guard(mutex_);
  is_aborted_ = true;
  if (abort_word_ == nullptr) return;
  std::atomic_ref<std::uint32_t>(*abort_word_).store(1, std::memory_order_release);
}

}  // namespace unisono::device
