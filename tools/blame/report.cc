#include "tools/blame/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tools/blame/verdict_text.h"
#include "tools/common/json_text.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/common/terminal.h"

namespace unisono::blame {
namespace {

using recorder::EntryState;
using recorder::Standing;
using recorder::Verdict;
using recorder::Witness;

std::string_view name_of(EntryState state) {
  switch (state) {
    case EntryState::kStarted:
      return "started";
    case EntryState::kCompleted:
      return "completed";
    case EntryState::kFailed:
    case EntryState::kFailedAlone:
      return "failed";
    case EntryState::kNone:
      break;
  }
  return "none";
}

std::string_view name_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::kIdle:
      return "idle";
    case Verdict::Kind::kFinished:
      return "finished";
    case Verdict::Kind::kBusy:
      return "busy";
    case Verdict::Kind::kMissing:
      return "missing";
    case Verdict::Kind::kStopped:
      return "stopped";
    case Verdict::Kind::kCycle:
      return "cycle";
  }
  return "";
}

std::vector<std::string> row_of(const Standing& standing, std::int64_t now_ns) {
  const Witness& witness = *standing.witness;
  std::vector<std::string> cells{std::to_string(standing.rank), witness.record.host,
                                 std::to_string(witness.record.pid),
                                 std::string(name_of_life(witness))};
  if (standing.call == nullptr) {
    cells.insert(cells.end(), {"", "", "no call yet"});
    return cells;
  }
  const recorder::RecordedCall& call = *standing.call;
  cells.emplace_back(name_of(call.state));
  cells.push_back(time_since(call.since_ns(), now_ns));
  cells.push_back(call.text() + (call.times > 1 ? fmt::format(", {} times", call.times) : ""));
  return cells;
}

nlohmann::ordered_json json_of(const Standing& standing, std::int64_t now_ns) {
  const Witness& witness = *standing.witness;
  nlohmann::ordered_json rank{{"rank", standing.rank},
                              {"host", witness.record.host},
                              {"pid", witness.record.pid},
                              {"process", name_of_life(witness)},
                              {"record", witness.record.name}};
  if (standing.call == nullptr) return rank;
  const recorder::RecordedCall& call = *standing.call;
  rank["call"] = call.text();
  rank["state"] = name_of(call.state);
  rank["communicator"] = call.communicator;
  if (!call.is_message() && call.is_numbered) rank["operation"] = call.sequence();
  rank["times"] = call.times;
  if (call.since_ns() > 0) {
    rank["since_s"] = static_cast<double>(now_ns - call.since_ns()) * 1e-9;
  }
  if (call.code != ErrorCode::kOk) rank["error"] = unisono::name_of(call.code);
  if (standing.is_held_up) {
    rank["waits_for"] = standing.waits_for;
    rank["waits_for_unrecorded"] = standing.unknown;
  }
  return rank;
}

// Some rank has not left it. What its ranks wait for is not known, since it was looked at once.
bool lives(const Job& job) {
  return std::any_of(job.begin(), job.end(), [](const Witness& each) {
    const bool is_there = each.life == recorder::Life::kRuns || each.life == recorder::Life::kHeld;
    return is_there && each.record.closed_ns == 0;
  });
}

std::string outcome_of(const Job& job, const Verdict& verdict, std::int64_t now_ns) {
  const bool is_known = verdict.kind == Verdict::Kind::kStopped || !lives(job);
  return is_known ? sentences_of(verdict, now_ns).front() : "it runs";
}

// "2026-11-27 21:40:03", by the clock on the wall.
std::string date_of(std::int64_t realtime_ns) {
  const auto seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
  std::tm parts{};
  char text[32] = {};
  if (::localtime_r(&seconds, &parts) == nullptr) return "?";
  return std::strftime(text, sizeof text, "%F %T", &parts) > 0 ? text : "?";
}

// The same for the job that is shown and for the others.
std::string title_of(const Job& job) {
  const recorder::RankRecord& one = job.front().record;
  return fmt::format("job {}: records of {} of {}, began {}", one.job, job.size(),
                     tools::counted(one.world_size, "rank", "ranks"), date_of(began_ns(job)));
}

std::string others_text(const Found& found, std::int64_t now_ns) {
  if (found.others.empty()) return "";
  std::string text = "# other jobs, of which --job shows one:\n";
  if (found.others_left_out > 0) {
    text += fmt::format("#   {} that began earlier\n", found.others_left_out);
  }
  for (const Job& other : found.others) {
    text += fmt::format("#   {}; {}\n", title_of(other),
                        outcome_of(other, recorder::blame(other), now_ns));
  }
  return text;
}

// As title_of(), of the job that is shown and of the others.
nlohmann::ordered_json json_title_of(const Job& job) {
  const recorder::RankRecord& one = job.front().record;
  return {{"job", one.job},
          {"world_size", one.world_size},
          {"records", job.size()},
          {"began_s", static_cast<double>(began_ns(job)) * 1e-9},
          {"runs", lives(job)}};
}

nlohmann::ordered_json json_of(const Job& job, std::int64_t now_ns) {
  const Verdict verdict = recorder::blame(job);
  nlohmann::ordered_json report = json_title_of(job);
  if (verdict.kind == Verdict::Kind::kStopped) report["first"] = verdict.first;
  report["text"] = outcome_of(job, verdict, now_ns);
  return report;
}

}  // namespace

std::string report_text(const Found& found, std::int64_t now_ns, bool coloured) {
  const Verdict verdict = recorder::blame(found.witnesses);
  std::string text = "# " + title_of(found.witnesses) + "\n";
  using tools::Align;
  tools::Table table({{"rank"},
                      {"host", Align::kLeft},
                      {"pid"},
                      {"process", Align::kLeft},
                      {"state", Align::kLeft},
                      {"since"},
                      {"call", Align::kLeft}});
  for (const Standing& each : verdict.standings) {
    table.add_row(row_of(each, now_ns));
  }
  text += table.text() + "\n";
  bool is_first = true;
  for (const std::string& sentence : sentences_of(verdict, now_ns)) {
    text += is_first ? tools::paint(sentence, tools::Colour::kBold, coloured) : "  " + sentence;
    text += "\n";
    is_first = false;
  }
  for (const std::string& note : found.notes) text += "# " + note + "\n";
  return text + others_text(found, now_ns);
}

std::string report_json(const Found& found, std::int64_t now_ns) {
  const Verdict verdict = recorder::blame(found.witnesses);
  nlohmann::ordered_json report = json_title_of(found.witnesses);
  report["ranks"] = nlohmann::json::array();
  for (const Standing& each : verdict.standings) {
    report["ranks"].push_back(json_of(each, now_ns));
  }
  report["verdict"] = {{"kind", name_of(verdict.kind)},
                       {"first", verdict.first},
                       {"text", sentences_of(verdict, now_ns)}};
  report["other_jobs"] = nlohmann::json::array();
  for (const Job& other : found.others) report["other_jobs"].push_back(json_of(other, now_ns));
  report["other_jobs_left_out"] = found.others_left_out;
  report["notes"] = found.notes;
  return tools::json_text(report) + "\n";
}

}  // namespace unisono::blame
