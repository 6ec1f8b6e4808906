#include "tools/blame/trace.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/collective.h"

namespace unisono::blame {
namespace {

using recorder::EntryState;
using recorder::RankRecord;
using recorder::RecordedCall;

// Of the earliest call, so that numbers keep their digits.
std::int64_t begin_of(std::span<const recorder::Witness> witnesses) {
  std::int64_t begin = INT64_MAX;
  for (const recorder::Witness& witness : witnesses) {
    for (const RecordedCall& call : witness.record.calls) {
      begin = std::min(begin, call.started_ns);
    }
  }
  return begin;
}

double microseconds(std::int64_t from_ns, std::int64_t to_ns) {
  // Whatever a record holds, without overflow.
  const auto difference = static_cast<std::int64_t>(static_cast<std::uint64_t>(to_ns) -
                                                    static_cast<std::uint64_t>(from_ns));
  return static_cast<double>(difference) * 1e-3;
}

nlohmann::ordered_json event_of(const RankRecord& record, const RecordedCall& call,
                                std::int64_t begin_ns) {
  nlohmann::ordered_json event{
      {"name", facts_of(static_cast<Collective>(call.record.collective)).name},
      {"cat", call.is_message() ? "message" : "collective"},
      // One that has not ended has no end in the trace either.
      {"ph", call.state == EntryState::kRunning ? "B" : "X"},
      {"pid", record.rank},
      {"tid", call.communicator},
      {"ts", microseconds(begin_ns, call.started_ns)}};
  if (call.state != EntryState::kRunning) {
    event["dur"] = microseconds(call.started_ns, call.since_ns());
  }
  event["args"] = {{"call", call.text()}, {"times", call.times}};
  if (call.state == EntryState::kFailed) event["args"]["error"] = name_of(call.code);
  return event;
}

nlohmann::ordered_json name_event(const char* what, const RankRecord& record, std::uint32_t thread,
                                  const std::string& name) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", record.rank},
          {"tid", thread},
          {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_json(std::span<const recorder::Witness> witnesses) {
  const std::int64_t begin_ns = begin_of(witnesses);
  nlohmann::ordered_json events = nlohmann::json::array();
  for (const recorder::Witness& witness : witnesses) {
    const RankRecord& record = witness.record;
    const std::string rank = "rank " + std::to_string(record.rank);
    events.push_back(name_event("process_name", record, 0, rank + " on " + record.host));
    for (const recorder::RecordedCommunicator& each : record.communicators) {
      events.push_back(name_event("thread_name", record, each.id,
                                  "communicator " + std::to_string(each.id) + " of " +
                                      std::to_string(each.size) + " ranks"));
    }
    for (const RecordedCall& call : record.calls) {
      events.push_back(event_of(record, call, begin_ns));
    }
  }
  const nlohmann::ordered_json trace{{"displayTimeUnit", "ns"}, {"traceEvents", events}};
  return trace.dump() + "\n";
}

}  // namespace unisono::blame
