#include "rendezvous/witnesses.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/process_facts.h"
#include "rendezvous/control_wire.h"

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
             "says "
             "does not arrive";
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

std::vector<Witnesses::Question> Witnesses::ask(const std::vector<Rank>& overdue,
                                                const std::vector<Rank>& heard,
                                                const std::function<HostKey(Rank)>& host_of) {
  if (asked_.empty() && overdue.empty()) return {};
  std::erase_if(asked_, [&](const auto& each) {
    return !std::binary_search(overdue.begin(), overdue.end(), each.first);
  });
  std::vector<Question> questions;
  if (asked_.size() == overdue.size()) return questions;
  std::map<HostKey, Rank> witnesses;
  for (const Rank rank : heard) witnesses.emplace(host_of(rank), rank);
  for (const Rank rank : overdue) {
    const auto witness = witnesses.find(host_of(rank));
    if (witness == witnesses.end()) continue;  // somebody may be heard there yet
    if (asked_.emplace(rank, Asked{witness->second}).second) {
      questions.push_back({witness->second, rank});
    }
  }
  return questions;
}

void Witnesses::on_sight(Rank witness, const SightMessage& told) {
  const auto asked = asked_.find(told.rank);
  if (asked != asked_.end() && asked->second.witness == witness) asked->second.sight = told.sight;
}

std::string Witnesses::text_on(Rank rank) const {
  const auto asked = asked_.find(rank);
  if (asked == asked_.end() || asked->second.sight == ProcessSight::kUnseen) return {};
  return fmt::format("; {} (seen by rank {} of its host)", sight_text(asked->second.sight),
                     asked->second.witness);
}

}  // namespace unisono::rendezvous
