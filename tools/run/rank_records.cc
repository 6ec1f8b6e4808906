#include "tools/run/rank_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/record_setting.h"
#include "recorder/record_format.h"
#include "recorder/record_memory.h"
#include "tools/blame/verdict_text.h"

namespace unisono::run {
namespace {

constexpr std::string_view kSetting = "UNISONO_RECORDER=";
constexpr std::string_view kMemory = "UNISONO_RECORDER_MEMORY=";

// What UNISONO_RECORDER says, or its default.
std::string place_in(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(kSetting)) return entry.substr(kSetting.size());
  }
  return "";
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
  RecordSetting setting;
  if (!parse(place_in(environment), &setting)) return;
  folder_ = setting.folder;
  began_ = std::filesystem::file_time_type::clock::now();
  if (!setting.is_memory() || !has_descriptors(ranks)) return;
  for (int i = 0; i < ranks; ++i) {
    Result<UniqueFd> memory = recorder::make_sealed_memory();
    if (!memory) return;
    memory_.push_back({.fd = std::move(*memory)});
  }
}

void RankRecords::announce(int local_rank, std::vector<std::string>* environment) const {
  std::erase_if(*environment, [](const std::string& entry) { return entry.starts_with(kMemory); });
  const auto at = static_cast<std::size_t>(local_rank);
  if (at >= memory_.size()) return;
  environment->push_back(std::string(kMemory) + recorder::announce(memory_[at].fd.get()));
}

void RankRecords::hand_over(int local_rank) const {
  const auto at = static_cast<std::size_t>(local_rank);
  if (at < memory_.size()) ::fcntl(memory_[at].fd.get(), F_SETFD, 0);
}

void RankRecords::on_start(int local_rank, bool rejoins) {
  const auto at = static_cast<std::size_t>(local_rank);
  if (at >= memory_.size()) return;
  const Result<recorder::RankRecord> record = recorder::read_record(memory_[at].fd.get(), "");
  memory_[at].predecessor_opened_ns = record ? record->opened_ns : 0;
  memory_[at].rejoins = rejoins;
}

bool RankRecords::has_joined_none(int local_rank) const {
  const auto at = static_cast<std::size_t>(local_rank);
  if (at >= memory_.size()) return false;
  const Result<recorder::RankRecord> record = recorder::read_record(memory_[at].fd.get(), "");
  if (!record) return record.error().code() == ErrorCode::kNotMember;
  return record->opened_ns == memory_[at].predecessor_opened_ns;
}

bool RankRecords::Job::is_whole() const {
  return witnesses.size() == static_cast<std::size_t>(witnesses.front().record.world_size);
}

// A launched command may have started several.
std::map<std::string, RankRecords::Job> RankRecords::read_jobs(
    const std::vector<recorder::Life>& lives) const {
  std::map<std::string, Job> jobs;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    Result<recorder::RankRecord> record = recorder::read_record(memory_[i].fd.get(), "");
    if (!record) continue;
    recorder::Life life = i < lives.size() ? lives[i] : recorder::Life::kUnknown;
    if (record->opened_ns == memory_[i].predecessor_opened_ns) {
      if (!memory_[i].rejoins) continue;  // of a job that is over
      life = recorder::Life::kGone;
    }
    Job& job = jobs[record->job];
    job.newest_ns = std::max(job.newest_ns, record->opened_ns);
    job.has_gone = job.has_gone || life == recorder::Life::kGone;
    job.witnesses.push_back({std::move(*record), life});
  }
  return jobs;
}

// In the folder: of a rank that has joined a job since these were to start.
bool RankRecords::has_new_record() const {
  std::error_code error;
  std::filesystem::directory_iterator at(folder_, error);
  for (; at != std::filesystem::directory_iterator(); at.increment(error)) {
    const bool is_record = at->path().extension() == recorder::kFileSuffix;
    if (is_record && at->last_write_time(error) >= began_) return true;
  }
  return false;
}

std::string RankRecords::verdict(const std::vector<recorder::Life>& lives) const {
  // Ranks that run have not all heard of it.
  const bool some_run = std::find(lives.begin(), lives.end(), recorder::Life::kRuns) != lives.end();
  if (!folder_.empty()) {
    if (some_run || !has_new_record()) return "";
    return fmt::format("`unisono blame {}` says who stopped first", folder_);
  }
  const std::map<std::string, Job> jobs = read_jobs(lives);
  if (jobs.empty()) return "";
  const auto newest = std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return a.second.newest_ns < b.second.newest_ns;
  });
  // Who has joined another job since, by growing, has the record of that in its own memory: without
  // it the others would seem to wait for each other alone.
  const bool an_older_failed = std::any_of(jobs.begin(), jobs.end(), [&](const auto& each) {
    return each.second.has_gone && each.first != newest->first;
  });
  const bool are_whole = std::all_of(jobs.begin(), jobs.end(),
                                     [](const auto& each) { return each.second.is_whole(); });
  if (an_older_failed && !are_whole) return "";
  const auto failed = std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.has_gone, a.second.newest_ns) <
           std::pair(b.second.has_gone, b.second.newest_ns);
  });
  const recorder::Verdict verdict = recorder::blame(failed->second.witnesses);
  if (verdict.first.empty()) return "";
  const std::vector<std::string> sentences = blame::sentences_of(verdict, 0);
  if (some_run) return verdict.kind == recorder::Verdict::Kind::kStopped ? sentences.front() : "";
  std::string line;
  for (const std::string& sentence : sentences) {
    line += (line.empty() ? "" : "; ") + sentence;
  }
  return line;
}

}  // namespace unisono::run
