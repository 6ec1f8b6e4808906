#include "recorder/trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

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

std::int64_t end_of(const RecordedCall& call) {
  return call.state == EntryState::kStarted ? INT64_MAX : std::max(call.started_ns, call.ended_ns);
}

// Viewers stack the calls of a track, so that those which overlap need one each: collectives and
// messages of a communicator have their own, and more where several are in flight at a time.
class Tracks {
 public:
  explicit Tracks(const RankRecord& record) {
    for (const RecordedCall& call : record.calls) {
      std::vector<std::int64_t>& ends = ends_[{call.communicator, call.is_message()}];
      const auto free = std::find_if(ends.begin(), ends.end(),
                                     [&](std::int64_t end) { return end <= call.started_ns; });
      lanes_.push_back(static_cast<std::size_t>(free - ends.begin()));
      if (free == ends.end()) ends.emplace_back();
      ends[lanes_.back()] = end_of(call);
    }
    std::size_t next = 1;
    for (const auto& [kind, ends] : ends_) {
      first_.emplace(kind, next);
      next += ends.size();
    }
  }

  /// Of the `i`th call of the record.
  std::size_t of(const RankRecord& record, std::size_t i) const {
    const RecordedCall& call = record.calls[i];
    return first_.at({call.communicator, call.is_message()}) + lanes_[i];
  }
  /// Tells `name(track, text)` of each.
  template <typename Name>
  void name_all(const RankRecord& record, Name name) const {
    for (const auto& [kind, ends] : ends_) {
      const auto& [communicator, is_message] = kind;
      const RecordedCommunicator* const known = record.find(communicator);
      const std::string text =
          "communicator " + std::to_string(communicator) +
          (known == nullptr   ? ""
           : known->size == 1 ? " of 1 rank"
                              : " of " + std::to_string(known->size) + " ranks") +
          (is_message ? ": messages" : ": collectives");
      for (std::size_t lane = 0; lane < ends.size(); ++lane) {
        name(first_.at(kind) + lane, lane == 0 ? text : text + " " + std::to_string(lane + 1));
      }
    }
  }

 private:
  using Kind = std::pair<std::uint32_t, bool>;      // communicator, is_message
  std::map<Kind, std::vector<std::int64_t>> ends_;  // by lane, of its last call
  std::map<Kind, std::size_t> first_;               // track
  std::vector<std::size_t> lanes_;                  // by call
};

std::string place_of(const RankRecord& record, std::size_t track) {
  return R"(,"pid":)" + std::to_string(record.rank) + R"(,"tid":)" + std::to_string(track);
}

void add_name(std::string_view what, const RankRecord& record, std::size_t track,
              const std::string& name, std::string* out) {
  *out += R"({"name":)" + quoted(what) + R"(,"ph":"M")" + place_of(record, track) +
          R"(,"args":{"name":)" + quoted(name) + "}},\n";
}

void add_call(const RankRecord& record, const RecordedCall& call, std::size_t track,
              std::int64_t origin_ns, std::string* out) {
  const CollectiveFacts& facts = facts_of(static_cast<Collective>(call.record.collective));
  const bool runs = call.state == EntryState::kStarted;
  *out += R"({"name":)" + quoted(facts.name) + R"(,"cat":)" +
          quoted(call.is_message() ? "message" : "collective") + R"(,"ph":)" +
          quoted(runs ? "B" : "X") + place_of(record, track) + R"(,"ts":)" +
          microseconds(origin_ns, call.started_ns);
  if (!runs) *out += R"(,"dur":)" + microseconds(call.started_ns, end_of(call));
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
    const Tracks tracks(record);
    tracks.name_all(record, [&](std::size_t track, const std::string& name) {
      add_name("thread_name", record, track, name, &out);
    });
    for (std::size_t i = 0; i < record.calls.size(); ++i) {
      add_call(record, record.calls[i], tracks.of(record, i), origin_ns, &out);
    }
  }
  if (out.ends_with(",\n")) out.erase(out.size() - 2, 1);
  return out + "]}\n";
}

}  // namespace unisono::recorder
