#include "rendezvous/failure/quorum.h"

#include <fmt/format.h>

#include <vector>

#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

std::string text_of(const std::set<Rank>& ranks) {
  return ranks_text(std::vector<Rank>(ranks.begin(), ranks.end()));
}

}  // namespace

bool may_go_on(const Parts& parts) {
  const auto& [here, elsewhere] = parts;
  if (elsewhere.empty()) return true;
  if (here.size() != elsewhere.size()) return here.size() > elsewhere.size();
  return !here.empty() && *here.begin() < *elsewhere.begin();
}

Status partitioned(Rank rank, const Parts& parts) {
  const auto& [here, elsewhere] = parts;
  return {ErrorCode::kPartitioned,
          fmt::format("rank {} is cut off: it hears {}, {} of {} that may live, and not {}; only "
                      "more than half go on, or the half with the lowest rank, and these may; see "
                      "whether the network between the hosts is up, then let this rank rejoin them "
                      "or start the job anew",
                      rank, text_of(here), here.size(), here.size() + elsewhere.size(),
                      text_of(elsewhere)),
          rank};
}

Parts parts_of(const std::set<Rank>& members, const std::set<Rank>& survivors,
               const std::function<bool(Rank)>& is_here, const Evidence& evidence) {
  std::set<HostKey> hosts;
  for (const Rank rank : survivors) hosts.insert(evidence.host_of(rank));
  Parts parts;
  std::set<Rank> beside;
  for (const Rank rank : members) {
    if (survivors.contains(rank) || is_here(rank)) {
      parts.here.insert(rank);
    } else if (!evidence.has_ended(rank)) {
      (hosts.contains(evidence.host_of(rank)) ? beside : parts.elsewhere).insert(rank);
    }
  }
  // Where there may be another part, they may be of it: their way there may be whole.
  if (!parts.elsewhere.empty()) parts.elsewhere.merge(beside);
  return parts;
}

}  // namespace unisono::rendezvous
