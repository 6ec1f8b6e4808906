// Events by which ranks that are threads of one process wait for each other's launches, words that
// tell the host which launches are over, and the word that calls them off. Events that other ranks
// look at belong to all of the communicator's ranks here: the one that records them may have left
// before another one has looked.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/device/device.h"
#include "cuda/driver/cuda_api.h"

namespace unisono::device {

class TeamEvents {
 public:
  /// The same for all ranks of this process that name it alike while any of them has it.
  static std::shared_ptr<TeamEvents> join(std::shared_ptr<const cuda::CudaApi> api,
                                          const std::string& name, int ranks);
  ~TeamEvents();
  TeamEvents(const TeamEvents&) = delete;

  /// The rank's event, made by its first call, with the rank's context current: recorded behind its
  /// latest launch. The context is kept for as long.
  Result<CUevent> event_of(Rank rank, const Device& device);
  /// Another one, of the device whose context is current, for this rank alone to record.
  Result<CUevent> new_event(const Device& device);

  /// A launch for those who wait for it: streams for the event, the host for its number in the
  /// word. Ranks tell each other, as bytes.
  struct End {
    CUevent event = nullptr;
    std::uint32_t* word = nullptr;
    std::uint32_t number = 0;
  };
  /// Of the rank's next launch, before it, with the rank's context current. In a capture the host
  /// has nothing to ask for. Nothing may throw between this and record_end(), or the host waits for
  /// a number that nobody writes.
  Result<End> next_end(Rank rank, const Device& device, bool is_captured);
  /// Behind the launch. `what` is for the error.
  Status record_end(const End& end, CUstream stream, bool is_captured, const std::string& what);
  static bool is_over(const End& end);

  /// What every launch looks at when it begins; taken by the first call, with its context current.
  Result<const std::uint32_t*> abort_word(const Device& device);
  /// Lives from before next_end() until the end is recorded: whoever has called abort() then finds
  /// a launch to wait for, or one that comes behind the word and moves nothing.
  class Launch {
   public:
    Launch(TeamEvents& team, Rank rank) : team_(team), rank_(rank) { team_.note(rank_, true); }
    ~Launch() { team_.note(rank_, false); }
    Launch(const Launch&) = delete;

   private:
    TeamEvents& team_;
    const Rank rank_;
  };
  /// What the rank has launched outside of captures is over, and nothing is being launched. Never
  /// where the driver has refused to write so, and always where the rank's device is broken.
  bool is_idle(Rank rank);
  /// Launches that have not begun move nothing from now on.
  void abort();

 private:
  TeamEvents(std::shared_ptr<const cuda::CudaApi> api, int ranks);
  void note(Rank rank, bool launches);

  std::shared_ptr<const cuda::CudaApi> api_;
  std::mutex mutex_;
  // By rank; of an end the latest launch's number.
  std::vector<End> ends_;
  std::vector<bool> launching_;
  std::vector<CUevent> more_events_;
  std::vector<std::shared_ptr<DeviceShare>> shares_;  // of those that have events
  std::shared_ptr<DeviceShare> word_owner_;
  std::uint32_t* abort_word_ = nullptr;
  bool is_aborted_ = false;
};

}  // namespace unisono::device
