// The transport itself; see verbs_transport.h for what it is. Tests make it with a device of their
// own and look at its counts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transports/verbs/cm_api.h"
#include "transports/verbs/link.h"
#include "transports/verbs/path_resolver.h"
#include "transports/verbs/registration.h"
#include "transports/verbs/side_channel.h"
#include "transports/verbs/staging.h"
#include "transports/verbs/verbs_api.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono::verbs {

class VerbsTransport final : public Transport, private SideChannelEvents {
 public:
  /// `cm`: only for VerbsConnect::kCm; null: this machine's.
  static Result<std::unique_ptr<VerbsTransport>> make(std::shared_ptr<VerbsApi> api,
                                                      VerbsOptions options,
                                                      std::unique_ptr<Transport> side,
                                                      std::shared_ptr<CmApi> cm = nullptr);
  ~VerbsTransport() override;

  std::string_view name() const override { return "verbs"; }
  EndpointTraits traits() const override { return {}; }
  /// A peer that is reached over the stream transport may have nothing else.
  EndpointTraits traits_to(Rank peer) const override {
    return carries_frames(peer) ? side_.transport().traits() : traits();
  }
  std::string address() const override;
  void set_identity(const std::string& job_id, const JobKey& key) override;
  Status set_peers(std::vector<std::string> addresses) override;
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  Status admits_direct(Rank peer, std::size_t bytes) const override;
  Status pin(std::span<const std::byte> memory) override;
  void unpin(std::span<const std::byte> memory) override;
  bool has_unsent() const override;
  void give_up(Rank peer, FrameSink& sink) override;
  void close(TimePoint deadline, FrameSink& sink) override;

  // Observers, for tests: whether bytes were copied or read in place, and memory registered anew or
  // found, changes no byte that a peer gets, only the time that it takes.
  const WorkCounts& work_counts() const { return counts_; }
  const RegistrationCache::Counts& registration_counts() const { return cache_->counts(); }

 private:
  VerbsTransport(VerbsOptions options, std::unique_ptr<Transport> side);
  Status open_rails(const std::shared_ptr<VerbsApi>& api);
  /// What its ports can talk with, as published.
  std::vector<std::string> networks() const;
  /// The ports in use, for people.
  std::string ports_text() const;
  void refuse(Rank peer, const std::vector<std::string>& own,
              const std::vector<std::string>& theirs);
  Status open_paths(std::shared_ptr<CmApi> cm);
  Status try_rings() const;
  Link& link_to(Rank peer);
  bool poll_completions();
  template <typename Work>
  void or_note(const Work& work);
  template <typename Work>
  void for_each_active(const Work& work);
  void end_unheard();
  void take(std::size_t rail, const ibv_wc& completion);
  void handle_rails();

  // SideChannelEvents
  bool carries_frames(Rank peer) const override;
  void message(Rank peer, std::string_view bytes) override;
  void side_closed(Rank peer, const Status& cause) override;
  void stray_frame(Rank peer) override;
  void no_memory(Rank peer) override;

  VerbsOptions options_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<RegistrationCache> cache_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<QueuePairDirectory> directory_;
  std::unique_ptr<PathResolver> paths_;  ///< null: paths are not asked for
  WorkCounts counts_;
  std::unique_ptr<LinkResources> shared_;
  SideChannel side_;
  std::vector<std::string> refusals_;  ///< by rank: why verbs does not reach it; empty: it does
  std::vector<std::unique_ptr<Link>> links_;  ///< by rank; null: never used
  std::vector<Link*> active_;
  std::multimap<const std::byte*, Registration*> pinned_;  ///< by the first byte
  std::vector<std::optional<Status>> gone_;  ///< by rank: why its side channel has closed
  std::vector<bool> rail_failed_;
  std::vector<bool> unheard_;  ///< by rank: what it said was lost, and no link is there to end
  bool has_unheard_ = false;
  bool lacks_memory_ = false;  ///< of a part of this poll
  unsigned polls_ = 0;
  bool closed_ = false;
};

}  // namespace unisono::verbs
