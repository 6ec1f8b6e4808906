#include "rendezvous/failure/witnesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/process_facts.h"
#include "rendezvous/messages/control_wire.h"

namespace unisono::rendezvous {

ProcessSight sight_of(const Member& member) {
  // In a container of its own the number is another process'.
  if (member.pid_namespace == 0 || member.pid_namespace != pid_namespace()) {
    return ProcessSight::kUnseen;
  }
  switch (facts_of_process(static_cast<int>(member.pid)).state) {
    case 'T':  // by a signal
    case 't':  // by a debugger
      return ProcessSight::kStopped;
    case 0:
    case 'X':
    case 'Z':
      return ProcessSight::kUnseen;
    default:
      return ProcessSight::kRuns;
  }
}

std::string_view sight_text(ProcessSight sight) {
  switch (sight) {
    case ProcessSight::kUnseen:
      break;
    case ProcessSight::kStopped:
      return "its process is stopped, by a signal or a debugger";
    case ProcessSight::kRuns:
      return "its process is not stopped: it gets no processor, hangs in the kernel, or what it "
             "says does not arrive";
  }
  return "it is stopped, or its host cannot be reached";
}

std::string encode(const SightMessage& message) {
  Writer writer(MessageType::kSight);
  writer.number(message.rank);
  writer.number(static_cast<std::uint8_t>(message.sight));
  return writer.finish();
}

Result<SightMessage> decode_sight(std::string_view body, int size) {
  Reader reader(body);
  const auto rank = reader.number<Rank>();
  const auto sight = reader.number<std::uint8_t>();
  if (!reader.finished() || rank < 0 || rank >= size ||
      sight > static_cast<std::uint8_t>(ProcessSight::kRuns)) {
    return Status(ErrorCode::kProtocol, "malformed word on a process");
  }
  return SightMessage{rank, static_cast<ProcessSight>(sight)};
}

std::string encode(const ProbedMessage& message) {
  Writer writer(MessageType::kProbed);
  writer.number(message.rank);
  writer.number(static_cast<std::uint8_t>(message.is_reached));
  return writer.finish();
}

Result<ProbedMessage> decode_probed(std::string_view body, int size) {
  Reader reader(body);
  const auto rank = reader.number<Rank>();
  const auto is_reached = reader.number<std::uint8_t>();
  if (!reader.finished() || rank < 0 || rank >= size || is_reached > 1) {
    return Status(ErrorCode::kProtocol, "malformed word on a probe");
  }
  return ProbedMessage{rank, is_reached == 1};
}

namespace {

using Heard = std::map<HostKey, Rank>;  // one of each host

// So many hosts share what is to be asked of a rack that is lost, ...
constexpr std::size_t kProbingHostsMax = 64;
// ... and so many of them ask each rank.
constexpr std::size_t kProbersMax = 2;

std::vector<Rank> some_of(const Heard& heard, Rank rank) {
  std::vector<Rank> all;
  for (const auto& [host, witness] : heard) all.push_back(witness);
  std::vector<Rank> some;
  for (std::size_t i = 0; i < std::min(all.size(), kProbersMax); ++i) {
    some.push_back(all[(static_cast<std::size_t>(rank) + i) % all.size()]);
  }
  return some;
}

}  // namespace

std::vector<Witnesses::Question> Witnesses::ask(const std::vector<Rank>& overdue,
                                                const std::vector<Rank>& heard,
                                                const Ranks& ranks) {
  std::erase_if(asked_, [&](const auto& each) {
    return !std::binary_search(overdue.begin(), overdue.end(), each.first);
  });
  std::vector<Question> questions;
  if (overdue.empty()) return questions;
  std::set<HostKey> missed;
  for (const Rank rank : overdue) missed.insert(ranks.host_of(rank));
  Heard beside, elsewhere;
  for (const Rank rank : heard) {
    const HostKey host = ranks.host_of(rank);
    if (missed.contains(host)) {
      beside.emplace(host, rank);
    } else if (host != ranks.here && elsewhere.size() < kProbingHostsMax &&
               !elsewhere.contains(host) && ranks.can_probe(rank)) {
      elsewhere.emplace(host, rank);
    }
  }
  for (const Rank rank : overdue) {
    Asked& asked = asked_[rank];
    const auto witness = beside.find(ranks.host_of(rank));
    if (witness != beside.end() && asked.witness < 0) {
      asked.witness = witness->second;
      questions.push_back({witness->second, rank, Look::kSight});
    }
    // That one may be silent as well, and only not missed yet.
    if (asked.probes.empty() && ranks.can_probe(rank)) {
      for (const Rank prober : some_of(elsewhere, rank)) {
        asked.probes.emplace(prober, Answer::kNone);
        questions.push_back({prober, rank, Look::kProbe});
      }
    }
  }
  return questions;
}

void Witnesses::on_sight(Rank witness, const SightMessage& told) {
  const auto asked = asked_.find(told.rank);
  if (asked != asked_.end() && asked->second.witness == witness) asked->second.sight = told.sight;
}

void Witnesses::on_probed(Rank witness, const ProbedMessage& told) {
  const auto asked = asked_.find(told.rank);
  if (asked == asked_.end()) return;
  const auto probe = asked->second.probes.find(witness);
  if (probe == asked->second.probes.end()) return;
  probe->second = told.is_reached ? Answer::kReached : Answer::kNotReached;
}

std::vector<Rank> Witnesses::with_answer(const Asked& asked, Answer answer) {
  std::vector<Rank> witnesses;
  for (const auto& [witness, given] : asked.probes) {
    if (given == answer) witnesses.push_back(witness);
  }
  return witnesses;
}

std::string Witnesses::text_on(Rank rank, bool is_whole_host,
                               const std::function<std::string(Rank)>& place_of) const {
  const auto found = asked_.find(rank);
  const Asked asked = found == asked_.end() ? Asked() : found->second;
  if (asked.sight != ProcessSight::kUnseen) {
    return fmt::format("; {} (seen by rank {} of its host)", sight_text(asked.sight),
                       asked.witness);
  }
  const std::vector<Rank> reaching = with_answer(asked, Answer::kReached);
  const std::vector<Rank> missing = with_answer(asked, Answer::kNotReached);
  const auto places = [&](const std::vector<Rank>& ranks) {
    return ranks.size() == 1 ? place_of(ranks[0])
                             : fmt::format("{} and {}", place_of(ranks[0]), place_of(ranks[1]));
  };
  const std::string_view whole = is_whole_host ? ", nor is any other rank of its host" : "";
  if (!reaching.empty()) {
    const std::string others =
        missing.empty() ? "" : fmt::format(", and {} does not", places(missing));
    return fmt::format(
        "{}; {} {} it{}: its process lives, and what it says does not get to the host of the "
        "arbiter",
        whole, places(reaching), reaching.size() == 1 ? "reaches" : "reach", others);
  }
  if (!missing.empty()) {
    return fmt::format(
        "{}; nor {} {} reach it by UDP: its host is down, cut off, or stopped{}, or lets no UDP "
        "through",
        whole, missing.size() == 1 ? "does" : "do", places(missing),
        is_whole_host ? " as a whole" : ", its process is");
  }
  if (is_whole_host) {
    return ", nor is any other rank of its host: that is down, cannot be reached, or is stopped as "
           "a whole";
  }
  return fmt::format("; {}", sight_text(ProcessSight::kUnseen));
}

}  // namespace unisono::rendezvous
