#include "tools/run/rank_records.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "base/record_setting.h"
#include "recorder/blame.h"
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

std::string RankRecords::verdict(const std::vector<bool>& ended_here) const {
  // A launched command may have started several jobs; the one that began last has failed.
  std::map<std::string, std::vector<recorder::Witness>> jobs;
  std::int64_t latest_ns = 0;
  std::string latest;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    Result<recorder::RankRecord> record = recorder::read_record(memory_[i].get(), "");
    if (!record) continue;
    const std::string job = record->job;
    if (record->opened_ns >= latest_ns) {
      latest_ns = record->opened_ns;
      latest = job;
    }
    const bool was_ended_here = i < ended_here.size() && ended_here[i];
    jobs[job].push_back(
        {std::move(*record), was_ended_here ? recorder::Life::kUnknown : recorder::Life::kGone});
  }
  if (jobs.empty()) return "";
  const std::vector<recorder::Witness>& witnesses = jobs[latest];
  const recorder::Verdict verdict = recorder::blame(witnesses);
  if (verdict.first.empty()) return "";
  std::string line;
  for (const std::string& sentence : blame::sentences_of(verdict, 0)) {
    line += (line.empty() ? "" : "; ") + sentence;
  }
  return line;
}

}  // namespace unisono::run
