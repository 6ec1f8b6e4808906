#include "tools/blame/verdict_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/communicator_id.h"
#include "tools/common/sizes.h"

namespace unisono::blame {
namespace {

using recorder::EntryState;
using recorder::Life;
using recorder::Standing;
using recorder::Verdict;
using recorder::Witness;

constexpr std::size_t kGroupsMax = 16;

std::string error_of(const recorder::RecordedCall& call) {
  return "failed in " + call.text() + ": " + std::string(name_of(call.code));
}

// What the rank that is to blame did: "was ended in all_reduce(...)".
std::string deed_of(const Standing& standing, std::int64_t now_ns) {
  const Witness& witness = *standing.witness;
  if (standing.call == nullptr) {
    return witness.was_ended()             ? "was ended before its first call"
           : witness.record.closed_ns != 0 ? "left its job before its first call"
           : witness.life == Life::kHeld   ? "is held (SIGSTOP or a debugger) before its first call"
                                           : "has made no call";
  }
  const std::string call = standing.call->text();
  const std::string in_or_after = (standing.is_held_up ? " in " : " after ") + call;
  if (witness.was_ended()) return "was ended" + in_or_after;
  if (standing.call->state == EntryState::kFailed) return error_of(*standing.call);
  if (witness.record.closed_ns != 0) return "left its job" + in_or_after;
  if (witness.life == Life::kHeld) return "is held (SIGSTOP or a debugger)" + in_or_after;
  const bool may_be_over = witness.life == Life::kUnknown;
  const std::string since = time_since(standing.call->since_ns(), now_ns);
  const std::string lasting = since.empty() || may_be_over ? "" : " since " + since;
  if (standing.has_only_started()) {
    return "has started " + call + lasting + ", and may not wait for it";
  }
  if (may_be_over) return "was last seen" + in_or_after;
  if (standing.is_held_up) return "is in " + call + lasting;
  return "has not arrived; its last call was " + call +
         (since.empty() ? ""
                        : (standing.call->times > 1 ? ", completed at most " : ", completed ") +
                              since + " ago");
}

// "has closed communicator 5, and ", of one that others wait in.
std::string what_it_closed(const Verdict& verdict, const Standing& standing) {
  const Witness& witness = *standing.witness;
  if (witness.was_ended() || witness.record.closed_ns != 0) return "";
  for (const Standing& each : verdict.standings) {
    const bool waits_for_it =
        std::binary_search(each.waits_for.begin(), each.waits_for.end(), standing.rank);
    if (!waits_for_it) continue;
    const std::uint32_t id = each.call->communicator;
    const recorder::RecordedCommunicator* const known = witness.record.find(id);
    if (known == nullptr || known->is_open) continue;
    return (id == kWorldId ? "has closed the communicator of all ranks"
                           : "has closed communicator " + std::to_string(id)) +
           ", and ";
  }
  return "";
}

std::string deed_of(const Verdict& verdict, Rank rank, std::int64_t now_ns) {
  const Standing* const standing = verdict.find(rank);
  return standing == nullptr ? "has left no record here"
                             : what_it_closed(verdict, *standing) + deed_of(*standing, now_ns);
}

bool has_unknown(const Verdict& verdict) {
  return std::any_of(verdict.standings.begin(), verdict.standings.end(),
                     [](const Standing& each) { return each.unknown > 0; });
}

std::string verdict_line(const Verdict& verdict, std::int64_t now_ns) {
  switch (verdict.kind) {
    case Verdict::Kind::kIdle:
      return "no rank is held up in a call";
    case Verdict::Kind::kFinished:
      return "all ranks have left their job, none with a failure";
    case Verdict::Kind::kBusy:
      return has_unknown(verdict)
                 ? "all ranks whose records are here have arrived in the calls that run"
                 : "nobody is missing: all ranks have arrived in the calls that run";
    case Verdict::Kind::kCycle:
      return name_ranks(verdict.first) +
             (verdict.first.size() == 1 ? " waits for itself" : " wait for each other");
    case Verdict::Kind::kMissing:
    case Verdict::Kind::kStopped:
      break;
  }
  const Rank rank = verdict.first.front();
  const bool is_missing = verdict.kind == Verdict::Kind::kMissing;
  return "rank " + std::to_string(rank) +
         (is_missing ? " is missing: it " : " stopped first: it ") + deed_of(verdict, rank, now_ns);
}

// Ranks that wait for the same ones in one call, or have failed in it, as one sentence.
std::vector<std::string> waits_of(const Verdict& verdict, std::int64_t now_ns) {
  struct Group {
    std::vector<Rank> ranks;
    std::int64_t since_ns = INT64_MAX;  // 0: not known of all
    bool may_be_over = true;            // none of its processes is known to be there
  };
  using Key = std::tuple<std::string, std::vector<Rank>, int, bool, EntryState>;
  std::map<Key, Group> groups;
  for (const Standing& each : verdict.standings) {
    if (!each.is_held_up || (each.waits_for.empty() && each.unknown == 0)) continue;
    Group& group =
        groups[{each.call->text(), each.waits_for, each.unknown, each.is_told, each.call->state}];
    group.ranks.push_back(each.rank);
    group.since_ns = std::min(group.since_ns, each.call->since_ns());
    group.may_be_over = group.may_be_over && each.witness->life == Life::kUnknown;
  }
  std::vector<std::string> sentences;
  for (const auto& [key, group] : groups) {
    if (sentences.size() == kGroupsMax) {
      sentences.push_back("and others, in other calls");
      break;
    }
    const bool is_one = group.ranks.size() == 1;
    const auto& [call, waits_for, unknown, is_told, state] = key;
    std::string whom = waits_for.empty() ? "" : name_ranks(waits_for);
    if (unknown > 0) {
      whom += (whom.empty() ? "" : " and ") + tools::counted(unknown, "rank", "ranks") +
              " of which no record here tells";
    }
    std::string text = name_ranks(group.ranks);
    if (is_told) {
      text += " failed because of " + whom;
    } else if (state == EntryState::kFailed) {
      text += " waited in vain for " + whom;
    } else {
      text += (is_one ? " waits for " : " wait for ") + whom;
    }
    text += " in " + call;
    const std::string since = time_since(group.since_ns, now_ns);
    const bool lasts = state == EntryState::kStarted && !group.may_be_over;
    if (lasts && !since.empty()) text += " since " + since;
    sentences.push_back(std::move(text));
  }
  return sentences;
}

}  // namespace

std::string name_ranks(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - begin > 2) {
      parts.push_back(std::to_string(ranks[begin]) + " to " + std::to_string(ranks[end - 1]));
      begin = end;
    } else {
      parts.push_back(std::to_string(ranks[begin++]));
    }
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

std::string_view name_of_life(const Witness& witness) {
  if (witness.was_ended()) return "ended";
  if (witness.record.closed_ns != 0) return "left";
  switch (witness.life) {
    case Life::kRuns:
      return "runs";
    case Life::kHeld:
      return "held";
    case Life::kGone:
      return "gone";
    case Life::kUnknown:
      break;
  }
  return "unknown";
}

std::string time_since(std::int64_t then_ns, std::int64_t now_ns) {
  if (then_ns <= 0 || now_ns <= then_ns) return "";
  return tools::format_duration(static_cast<double>(now_ns - then_ns) * 1e-9);
}

std::vector<std::string> sentences_of(const Verdict& verdict, std::int64_t now_ns) {
  std::vector<std::string> sentences{verdict_line(verdict, now_ns)};
  if (verdict.first.size() > 1 && verdict.kind != Verdict::Kind::kCycle) {
    const std::vector<Rank> others(verdict.first.begin() + 1, verdict.first.end());
    const bool is_one = others.size() == 1;
    sentences.push_back(
        "besides, " + name_ranks(others) +
        (is_one ? " " + deed_of(verdict, others.front(), now_ns) : " stopped or did not arrive"));
  }
  std::vector<std::string> waits = waits_of(verdict, now_ns);
  std::move(waits.begin(), waits.end(), std::back_inserter(sentences));
  return sentences;
}

}  // namespace unisono::blame
