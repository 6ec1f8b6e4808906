// Asks the network for paths, by librdmacm: which address vector leads from a port to a peer's. It
// waits for nothing: questions go out, poll() takes the answers. Connections are made as without
// it, by the hellos of the side channel. Owned by VerbsTransport, used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "transports/verbs/cm_api.h"
#include "transports/verbs/path.h"

namespace unisono::verbs {

/// How long a path may take to be found, and one try, which is repeated where nobody answers: the
/// first packets of many ranks at once are easily lost.
inline constexpr std::chrono::milliseconds kPathPatience{10'000};
inline constexpr int kPathTryMilliseconds = 2000;

class PathResolver;

/// One question. May be dropped at any time, before its resolver.
class PathQuery {
 public:
  ~PathQuery() { release(); }
  PathQuery(const PathQuery&) = delete;
  PathQuery& operator=(const PathQuery&) = delete;

  bool is_done() const { return answer_.has_value(); }
  /// Once done.
  const Result<Path>& answer() const { return *answer_; }
  /// Whether the answer to this question is one for that port and peer, too.
  bool leads_to(const Rail& rail, const QueuePairEnd& peer) const {
    return rail_ == &rail && peer.gid == peer_.gid && peer.lid == peer_.lid &&
           peer.mtu == peer_.mtu;
  }

 private:
  friend class PathResolver;
  enum class Step : std::uint8_t { kAddress, kRoute };

  PathQuery(PathResolver& resolver, const Rail& rail, const QueuePairEnd& peer,
            const VerbsOptions& options);
  Status begin();
  Status ask_address();
  Status ask_route();
  struct Event {
    rdma_cm_event_type type;
    int status;
  };
  /// Where it throws, look_again() takes it.
  void take(const Event& event);
  void take_event();
  void look_again();
  Status check_port() const;
  Result<Path> read_record() const;
  Status failed(const std::string& what, int error_number) const;
  void finish(Result<Path> answer);
  void release();

  PathResolver& resolver_;
  const Rail* const rail_;
  const QueuePairEnd peer_;
  const VerbsOptions& options_;
  const TimePoint until_;
  rdma_cm_id* id_ = nullptr;  ///< the kernel's; only while not done
  Step step_ = Step::kAddress;
  std::optional<Event> event_;  ///< not taken yet: memory was lacking
  std::optional<Result<Path>> answer_;
};

class PathResolver {
 public:
  /// kUnsupported says what of the kernel is not there.
  static Result<std::unique_ptr<PathResolver>> make(
      std::shared_ptr<CmApi> api, std::chrono::milliseconds patience = kPathPatience);
  ~PathResolver();
  PathResolver(const PathResolver&) = delete;
  PathResolver& operator=(const PathResolver&) = delete;

  /// A refusal is the query's answer. `rail` and `options` outlive the query.
  std::shared_ptr<PathQuery> ask(const Rail& rail, const QueuePairEnd& peer,
                                 const VerbsOptions& options);
  /// Takes the answers that are here. True: there were some.
  bool poll();

 private:
  friend class PathQuery;
  PathResolver(std::shared_ptr<CmApi> api, std::chrono::milliseconds patience)
      : api_(std::move(api)), patience_(patience) {}

  const std::shared_ptr<CmApi> api_;
  const std::chrono::milliseconds patience_;
  rdma_event_channel* channel_ = nullptr;
  std::vector<PathQuery*> waiting_;  ///< those that are not done
};

/// Whether paths can be asked for here at all, or what is missing.
Status check_path_resolver();

}  // namespace unisono::verbs
