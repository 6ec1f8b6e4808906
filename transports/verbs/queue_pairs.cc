// See queue_pairs.h.
#include "transports/verbs/queue_pairs.h"

#include <algorithm>

#include "base/log.h"

namespace unisono::verbs {

Status QueuePairs::open(Link& link, const std::vector<bool>& banned) {
  close();
  std::string lost;
  Status refusal;
  std::vector<bool> usable(rails_.size());
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    const std::string& failure = rails_[rail]->failure();
    usable[rail] = !banned[rail] && failure.empty();
    if (usable[rail]) continue;
    lost += "; " + (failure.empty() ? rails_[rail]->name() + " failed before" : failure);
  }
  // One on each rail before the second on any: all of them are used, however few there may be.
  for (int ordinal = 0; ordinal < options_.queue_pairs; ++ordinal) {
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      if (!usable[rail] || queue_pairs_.size() == kQueuePairsMax) continue;
      const Status added = add(link, rail, ordinal);
      if (added) continue;
      log::warning("a port is left out: " + added.message());
      refusal = added;
      usable[rail] = false;
    }
  }
  if (is_open()) return Status();
  return refusal ? Status(ErrorCode::kRankFailed, "no port is left" + lost) : refusal;
}

Status QueuePairs::add(Link& link, std::size_t rail, int ordinal) {
  UNISONO_ASSIGN(std::unique_ptr<QueuePair> made,
                 QueuePair::make(*rails_[rail], rail, ordinal, options_, counts_));
  queue_pairs_.push_back(std::move(made));
  directory_.add(*queue_pairs_.back(), link);
  return Status();
}

std::vector<QueuePairEnd> QueuePairs::ends() const {
  std::vector<QueuePairEnd> ends;
  for (const auto& queue_pair : queue_pairs_) ends.push_back(queue_pair->end());
  return ends;
}

// Where memory is lacking it throws before it moves anything.
Status QueuePairs::pair(bool lower, const std::vector<QueuePairEnd>& peer) {
  const std::vector<QueuePairEnd> own = ends();
  const std::vector<EndPair> pairs = lower ? pair_ends(own, peer) : pair_ends(peer, own);
  std::vector<Partner> partners;
  for (const EndPair& pair : pairs) {
    const QueuePair& mine = *queue_pairs_[lower ? pair.lower : pair.higher];
    partners.push_back(partner(mine, peer[lower ? pair.higher : pair.lower], partners));
  }
  std::vector<std::unique_ptr<QueuePair>> kept;
  kept.reserve(pairs.size());
  for (const EndPair& pair : pairs) {
    kept.push_back(std::move(queue_pairs_[lower ? pair.lower : pair.higher]));
  }
  for (const auto& unpaired : queue_pairs_) {
    if (unpaired != nullptr) directory_.remove(*unpaired);
  }
  queue_pairs_ = std::move(kept);
  partners_ = std::move(partners);
  turn_ = 0;
  if (is_open()) return Status();
  return Status(ErrorCode::kUnsupported,
                peer.empty() ? "it has no port left"
                             : "none of its ports has the link layer, RoCE version, address family "
                               "and partition of one here");
}

// Queue pairs between the same two ports share the question.
QueuePairs::Partner QueuePairs::partner(const QueuePair& queue_pair, const QueuePairEnd& peer,
                                        const std::vector<Partner>& others) const {
  if (paths_ == nullptr) return {peer, nullptr};
  for (const Partner& other : others) {
    if (other.path->leads_to(queue_pair.rail(), peer)) return {peer, other.path};
  }
  return {peer, paths_->ask(queue_pair.rail(), peer, options_)};
}

Result<bool> QueuePairs::connect(QueuePair** unreached) {
  bool complete = true;
  for (std::size_t i = 0; i < partners_.size(); ++i) {
    const PathQuery* path = partners_[i].path.get();
    if (path == nullptr) continue;
    complete = complete && path->is_done();
    if (!path->is_done() || path->answer()) continue;
    *unreached = queue_pairs_[i].get();
    return path->answer().error();
  }
  if (!complete) return false;
  for (std::size_t i = 0; i < partners_.size(); ++i) {
    const auto& [end, path] = partners_[i];
    QueuePair& mine = *queue_pairs_[i];
    const Status connected =
        mine.connect(end, path != nullptr ? path->answer().value()
                                          : told_path(mine.rail().port(), end, options_));
    if (connected) continue;
    *unreached = &mine;
    return connected;
  }
  partners_.clear();
  connected_ = true;
  return true;
}

// Some providers throw away the completions of a queue pair that is destroyed, and with them the
// news that it used up receives, which all links share. Others keep what it completed until then.
void QueuePairs::close() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->stop();
  for (const auto& queue_pair : queue_pairs_) queue_pair->rail().collect();
  for (auto& queue_pair : queue_pairs_) {
    Rail& rail = queue_pair->rail();
    const std::uint32_t number = queue_pair->number();
    directory_.remove(*queue_pair);
    queue_pair.reset();
    rail.collect();
    rail.disown(number);
  }
  queue_pairs_.clear();
  partners_.clear();
  connected_ = false;
}

QueuePair* QueuePairs::next_with_room() {
  for (std::size_t tried = 0; tried < queue_pairs_.size(); ++tried) {
    QueuePair& candidate = *queue_pairs_[turn_++ % queue_pairs_.size()];
    if (candidate.transfer_bytes_max() > 0) return &candidate;
  }
  return nullptr;
}

Status QueuePairs::post(QueuePair** failed) {
  for (const auto& queue_pair : queue_pairs_) {
    *failed = queue_pair.get();
    UNISONO_TRY(queue_pair->post());
  }
  return Status();
}

bool QueuePairs::uses(std::size_t rail) const {
  return std::any_of(queue_pairs_.begin(), queue_pairs_.end(),
                     [&](const auto& queue_pair) { return queue_pair->rail_index() == rail; });
}

}  // namespace unisono::verbs
