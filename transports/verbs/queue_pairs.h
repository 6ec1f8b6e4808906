// The queue pairs of one link in one epoch: made on every rail that still works, paired with the
// peer's, destroyed together. The first pair carries the ring; all carry large frames in turn.
// Owned by a Link, used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "transports/verbs/path_resolver.h"
#include "transports/verbs/queue_pair.h"
#include "transports/verbs/registration.h"

namespace unisono::verbs {

class Link;

/// Whose queue pair a completion belongs to; one per rank.
class QueuePairDirectory {
 public:
  struct Entry {
    Link* link = nullptr;
    QueuePair* queue_pair = nullptr;
  };
  explicit QueuePairDirectory(std::size_t rails) : by_rail_(rails) {}
  void add(QueuePair& queue_pair, Link& link) {
    by_rail_[queue_pair.rail_index()][queue_pair.number()] = {&link, &queue_pair};
  }
  void remove(const QueuePair& queue_pair) {
    by_rail_[queue_pair.rail_index()].erase(queue_pair.number());
  }
  /// Empty for one that no longer exists: its completions may come late.
  Entry find(std::size_t rail, std::uint32_t number) const {
    const auto found = by_rail_[rail].find(number);
    return found == by_rail_[rail].end() ? Entry{} : found->second;
  }

 private:
  std::vector<std::unordered_map<std::uint32_t, Entry>> by_rail_;
};

class QueuePairs {
 public:
  /// `paths`: where they are asked for; null: they are what both ends tell each other.
  QueuePairs(Rails rails, const VerbsOptions& options, WorkCounts& counts,
             QueuePairDirectory& directory, PathResolver* paths)
      : rails_(rails), options_(options), counts_(counts), directory_(directory), paths_(paths) {}
  ~QueuePairs() { close(); }
  QueuePairs(const QueuePairs&) = delete;
  QueuePairs& operator=(const QueuePairs&) = delete;

  /// Queue pairs for `link` on every rail that has not failed and is not in `banned`, in place of
  /// those there were. A rail that refuses is left out; the last refusal is the error when none is
  /// left.
  Status open(Link& link, const std::vector<bool>& banned);
  std::vector<QueuePairEnd> ends() const;
  /// Keeps those that have a partner, and asks for the paths to them. kUnsupported when none has.
  Status pair(bool lower, const std::vector<QueuePairEnd>& peer);
  /// Connects them all with their partners. False: a path is still being asked for. An error is
  /// about `*unreached`, which has no path or cannot take it: RoCE looks for the peer only then.
  Result<bool> connect(QueuePair** unreached);
  /// A fence: no device touches memory because of this link afterwards.
  void close();

  bool is_open() const { return !queue_pairs_.empty(); }
  /// Only then may work be staged: before that some pairs may have no partner, and none knows yet
  /// which of the peer's keys it needs.
  bool is_connected() const { return connected_; }
  /// Which carries the ring and the immediates.
  QueuePair& control() { return *queue_pairs_.front(); }
  /// The next in turn that has room for a transfer; null when none has.
  QueuePair* next_with_room();
  /// Posts what is staged on any of them. An error is about `*failed`.
  Status post(QueuePair** failed);
  bool uses(std::size_t rail) const;

 private:
  struct Partner {
    QueuePairEnd end;
    std::shared_ptr<PathQuery> path;  ///< null: both ends have told enough
  };

  Status add(Link& link, std::size_t rail, int ordinal);
  Partner partner(const QueuePair& queue_pair, const QueuePairEnd& peer,
                  const std::vector<Partner>& others) const;

  Rails rails_;
  const VerbsOptions& options_;
  WorkCounts& counts_;
  QueuePairDirectory& directory_;
  PathResolver* const paths_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::vector<Partner> partners_;  ///< of each; empty before they are known
  std::size_t turn_ = 0;
  bool connected_ = false;
};

}  // namespace unisono::verbs
