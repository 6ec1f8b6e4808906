#include "cuda/synchronisation/team_events.h"

#include <atomic>
#include <map>

#include "cuda/driver/memop_batch.h"

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
      ends_(static_cast<std::size_t>(ranks)),
      launching_(ends_.size()),
      shares_(ends_.size()) {}

TeamEvents::~TeamEvents() {
  for (CUevent event : more_events_) api_->EventDestroy(event);
  for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
    if (ends_[rank].event != nullptr) api_->EventDestroy(ends_[rank].event);
    if (ends_[rank].word != nullptr) shares_[rank]->give_back_word(ends_[rank].word);
  }
  if (abort_word_ != nullptr) word_owner_->give_back_word(abort_word_);
}

Result<CUevent> TeamEvents::event_of(Rank rank, const Device& device) {
  const std::lock_guard guard(mutex_);
  CUevent& event = ends_[static_cast<std::size_t>(rank)].event;
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

Result<TeamEvents::End> TeamEvents::next_end(Rank rank, const Device& device, bool is_captured) {
  UNISONO_TRY(event_of(rank, device).status());
  const std::lock_guard guard(mutex_);
  End& end = ends_[static_cast<std::size_t>(rank)];
  if (end.word == nullptr) {
    UNISONO_ASSIGN(end.word, device.share()->take_word());
  }
  if (!is_captured) ++end.number;
  return end;
}

Status TeamEvents::record_end(const End& end, CUstream stream, bool is_captured,
                              const std::string& what) {
  // The word first: whoever has waited for the event finds it written.
  Status told;
  if (!is_captured) {
    cuda::MemopBatch batch;
    batch.write(reinterpret_cast<CUdeviceptr>(end.word), end.number);
    told = batch.enqueue(*api_, stream, what);
  }
  UNISONO_TRY(api_->check(api_->EventRecord(end.event, stream), what));
  return told;
}

bool TeamEvents::is_over(const End& end) { return cuda::has_come(*end.word, end.number); }

void TeamEvents::note(Rank rank, bool launches) {
  const std::lock_guard guard(mutex_);
  launching_[static_cast<std::size_t>(rank)] = launches;
}

bool TeamEvents::is_idle(Rank rank) {
  const std::lock_guard guard(mutex_);
  const End& end = ends_[static_cast<std::size_t>(rank)];
  if (launching_[static_cast<std::size_t>(rank)]) return false;
  return end.word == nullptr || is_over(end) ||
         shares_[static_cast<std::size_t>(rank)]->fault() != CUDA_SUCCESS;
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
