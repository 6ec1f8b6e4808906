#include "recorder/trace.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/collective.h"

namespace unisono::recorder {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Numbers of today keep their digits where JSON's are doubles.
std::int64_t midnight_before(std::span<const RankRecord> records) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  std::int64_t first = INT64_MAX;
  for (const RankRecord& record : records) first = std::min(first, record.opened_ns);
  return first - first % kDay;
}

// Whatever a record holds, without overflow.
std::string microseconds(std::int64_t from_ns, std::int64_t to_ns) {
  const auto difference = static_cast<std::int64_t>(static_cast<std::uint64_t>(to_ns) -
                                                    static_cast<std::uint64_t>(from_ns));
  const bool is_negative = difference < 0;
  const std::uint64_t ns = is_negative ? 0 - static_cast<std::uint64_t>(difference)
                                       : static_cast<std::uint64_t>(difference);
  std::string decimals = std::to_string(ns % 1000);
  decimals.insert(0, 3 - decimals.size(), '0');
  return (is_negative ? "-" : "") + std::to_string(ns / 1000) + "." + decimals;
}

std::string place_of(const RankRecord& record, std::uint32_t communicator) {
  return R"(,"pid":)" + std::to_string(record.rank) + R"(,"tid":)" + std::to_string(communicator);
}

void add_name(std::string_view what, const RankRecord& record, std::uint32_t communicator,
              const std::string& name, std::string* out) {
  *out += R"({"name":)" + quoted(what) + R"(,"ph":"M")" + place_of(record, communicator) +
          R"(,"args":{"name":)" + quoted(name) + "}},\n";
}

void add_call(const RankRecord& record, const RecordedCall& call, std::int64_t origin_ns,
              std::string* out) {
  const CollectiveFacts& facts = facts_of(static_cast<Collective>(call.record.collective));
  const bool runs = call.state == EntryState::kRunning;
  *out += R"({"name":)" + quoted(facts.name) + R"(,"cat":)" +
          quoted(call.is_message() ? "message" : "collective") + R"(,"ph":)" +
          quoted(runs ? "B" : "X") + place_of(record, call.communicator) + R"(,"ts":)" +
          microseconds(origin_ns, call.started_ns);
  if (!runs)
    *out += R"(,"dur":)" + microseconds(call.started_ns, std::max(call.started_ns, call.ended_ns));
  *out += R"(,"args":{"call":)" + quoted(call.text()) + R"(,"times":)" + std::to_string(call.times);
  if (call.code != ErrorCode::kOk) *out += R"(,"error":)" + quoted(name_of(call.code));
  *out += "}},\n";
}

}  // namespace

std::string trace_of(std::span<const RankRecord> records) {
  const std::int64_t origin_ns = midnight_before(records);
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (const RankRecord& record : records) {
    add_name("process_name", record, 0,
             "rank " + std::to_string(record.rank) + " on " + record.host, &out);
    for (const RecordedCommunicator& each : record.communicators) {
      add_name(
          "thread_name", record, each.id,
          "communicator " + std::to_string(each.id) + " of " + std::to_string(each.size) + " ranks",
          &out);
    }
    for (const RecordedCall& call : record.calls) add_call(record, call, origin_ns, &out);
  }
  if (out.ends_with(",\n")) out.erase(out.size() - 2, 1);
  return out + "]}\n";
}

}  // namespace unisono::recorder
