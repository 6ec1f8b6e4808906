#include "tools/run/rank_records.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/record_setting.h"
#include "recorder/record_memory.h"
#include "tools/blame/verdict_text.h"

namespace unisono::run {
namespace {

constexpr std::string_view kSetting = "UNISONO_RECORDER=";
constexpr std::string_view kMemory = "UNISONO_RECORDER_MEMORY=";

bool go_elsewhere(const std::vector<std::string>& environment) {
  return std::any_of(environment.begin(), environment.end(), [](std::string_view entry) {
    if (!entry.starts_with(kSetting)) return false;
    RecordSetting setting;
    return !parse(entry.substr(kSetting.size()), &setting) || !setting.is_memory();
  });
}

// Records are no reason for a job not to start: two pipes a rank come first.
bool has_descriptors(int ranks) {
  constexpr rlim_t kOthers = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return limit.rlim_cur >= 3 * static_cast<rlim_t>(ranks) + kOthers;
}

}  // namespace

RankRecords::RankRecords(int ranks, const std::vector<std::string>& environment) {
  if (go_elsewhere(environment) || !has_descriptors(ranks)) return;
  for (int i = 0; i < ranks; ++i) {
    Result<UniqueFd> memory = recorder::make_sealed_memory();
    if (!memory) return;
    memory_.push_back(std::move(*memory));
  }
}

void RankRecords::announce(int local_rank, std::vector<std::string>* environment) const {
  std::erase_if(*environment, [](const std::string& entry) { return entry.starts_with(kMemory); });
  const auto at = static_cast<std::size_t>(local_rank);
  if (at >= memory_.size()) return;
  environment->push_back(std::string(kMemory) + recorder::announce(memory_[at].get()));
}

void RankRecords::hand_over(int local_rank) const {
  const auto at = static_cast<std::size_t>(local_rank);
  if (at < memory_.size()) ::fcntl(memory_[at].get(), F_SETFD, 0);
}

std::string RankRecords::verdict(const std::vector<recorder::Life>& lives) const {
  // A launched command may have started several jobs; the one that began last has failed.
  std::map<std::string, std::vector<recorder::Witness>> jobs;
  std::int64_t latest_ns = 0;
  std::string latest;
  std::set<std::string> of_gone;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    Result<recorder::RankRecord> record = recorder::read_record(memory_[i].get(), "");
    if (!record) continue;
    const std::string job = record->job;
    if (record->opened_ns >= latest_ns) {
      latest_ns = record->opened_ns;
      latest = job;
    }
    const recorder::Life life = i < lives.size() ? lives[i] : recorder::Life::kUnknown;
    if (life == recorder::Life::kGone) of_gone.insert(job);
    jobs[job].push_back({std::move(*record), life});
  }
  // Who has joined another job since, by growing, has the record of that in its own memory: without
  // it the others would seem to wait for each other alone.
  of_gone.erase(latest);
  if (jobs.empty() || !of_gone.empty()) return "";
  const std::vector<recorder::Witness>& witnesses = jobs[latest];
  const recorder::Verdict verdict = recorder::blame(witnesses);
  if (verdict.first.empty()) return "";
  const std::vector<std::string> sentences = blame::sentences_of(verdict, 0);
  // Ranks that run have not all heard of it.
  const bool some_run = std::find(lives.begin(), lives.end(), recorder::Life::kRuns) != lives.end();
  if (some_run) return verdict.kind == recorder::Verdict::Kind::kStopped ? sentences.front() : "";
  std::string line;
  for (const std::string& sentence : sentences) {
    line += (line.empty() ? "" : "; ") + sentence;
  }
  return line;
}

}  // namespace unisono::run
