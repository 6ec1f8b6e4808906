#include "tools/blame/find_records.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/process_facts.h"
#include "base/unique_fd.h"
#include "tools/common/sizes.h"
#include "topology/host_identity.h"

namespace unisono::blame {
namespace {

using recorder::RankRecord;

// Ranks of a busy host are late by as much as the system lets others run, and nobody is missing.
constexpr auto kMoment = std::chrono::milliseconds(200);

// A record, and the process' life just before it was read: what is told of one that is gone or held
// is its last. For update_record() the memory of a process is kept, which may end meanwhile; a file
// is opened again, since there may be more of them than may be open.
struct Seen {
  RankRecord record;
  recorder::Life life = recorder::Life::kUnknown;
  std::string path;
  UniqueFd memory;
};

struct Collected {
  std::vector<Seen> records;
  std::vector<std::string> notes;
  std::size_t jobs_left_out = 0;
};

Result<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (open == nullptr) {
    return Status(ErrorCode::kSystem, folder + ": " + errno_text(errno));
  }
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(open.get())) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

// Opens only what a record can be: whoever names it may not be trusted, and to open a device or a
// pipe may have effects. `owner`: whose it has to be.
UniqueFd open_record(const std::string& path, int flags, std::optional<uid_t> owner,
                     std::string* why) {
  const UniqueFd place(::open(path.c_str(), O_PATH | O_CLOEXEC | flags));
  struct stat facts {};
  if (!place || ::fstat(place.get(), &facts) != 0) {
    *why = errno_text(errno);
    return UniqueFd();
  }
  if (!S_ISREG(facts.st_mode) || (owner && facts.st_uid != *owner)) {
    *why = S_ISREG(facts.st_mode) ? "it is of another user than the process" : "it is no file";
    return UniqueFd();
  }
  const std::string again = "/proc/self/fd/" + std::to_string(place.get());
  UniqueFd file(::open(again.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) *why = errno_text(errno);
  return file;
}

UniqueFd open_file(const std::string& path, std::string* why) {
  return open_record(path, O_NOFOLLOW, {}, why);
}

// Of a file in a folder, or, where it has an `owner`, of the memory that a process holds. Memory
// that no rank has joined with is the launcher's alone, and nothing to tell.
void collect(const std::string& path, std::optional<uid_t> owner, Collected* all) {
  const std::string name = recorder::printable(path);
  std::string why;
  UniqueFd file = owner ? open_record(path, 0, owner, &why) : open_file(path, &why);
  if (!file) {
    all->notes.push_back(name + ": " + why);
    return;
  }
  Result<RankRecord> record = recorder::read_record(file.get(), name);
  const recorder::Life life = record ? life_of(*record) : recorder::Life::kUnknown;
  if (life != recorder::Life::kRuns) record = recorder::read_record(file.get(), name);
  if (record) {
    if (!owner) file.reset();
    all->records.push_back({std::move(*record), life, path, std::move(file)});
  } else if (record.error().code() != ErrorCode::kNotMember) {
    all->notes.push_back(record.error().message());
  }
}

bool is_record(const std::string& link) {
  return link.starts_with(std::string("/memfd:") + recorder::kMemoryName) ||
         link.ends_with(recorder::kFileSuffix);
}

// What a process holds, or nothing where it is another user's.
void collect_of_process(int pid, Collected* all) {
  const std::string process = "/proc/" + std::to_string(pid), folder = process + "/fd";
  struct stat facts {};
  if (::stat(process.c_str(), &facts) != 0) return;
  const Result<std::vector<std::string>> names = names_in(folder);
  if (!names) return;
  for (const std::string& name : *names) {
    std::string link(4096, '\0');
    const std::string path = folder + "/" + name;
    const ssize_t bytes = ::readlink(path.c_str(), link.data(), link.size());
    link.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    if (is_record(link)) collect(path, facts.st_uid, all);
  }
}

std::vector<int> all_pids() {
  std::vector<int> pids;
  const Result<std::vector<std::string>> names = names_in("/proc");
  if (!names) return pids;
  for (const std::string& name : *names) {
    int pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

// `pid` and all that descends from it.
std::set<int> family_of(int pid, const std::vector<int>& pids) {
  std::multimap<int, int> children;
  for (const int each : pids) children.emplace(facts_of_process(each).parent, each);
  std::set<int> family;
  std::vector<int> open{pid};
  while (!open.empty()) {
    const int parent = open.back();
    open.pop_back();
    if (!family.insert(parent).second) continue;
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) open.push_back(child->second);
  }
  return family;
}

std::string latest_job(const std::vector<Seen>& records) {
  return std::max_element(
             records.begin(), records.end(),
             [](const Seen& a, const Seen& b) { return a.record.opened_ns < b.record.opened_ns; })
      ->record.job;
}

// A job id may be used again, as that of a file of ranks is, and files outlive their boot.
void leave_out_earlier_boots(std::map<Rank, Seen>* chosen, std::vector<std::string>* notes) {
  std::map<std::string, const RankRecord*> latest;  // by host
  for (const auto& [rank, seen] : *chosen) {
    const RankRecord*& one = latest[seen.record.host];
    if (one == nullptr || one->opened_ns < seen.record.opened_ns) one = &seen.record;
  }
  std::erase_if(*chosen, [&](const auto& each) {
    const RankRecord& record = each.second.record;
    const bool is_earlier = record.is_of_earlier_boot_than(*latest[record.host]);
    if (is_earlier) {
      notes->push_back("left out: " + record.name + " is of an earlier boot of " + record.host);
    }
    return is_earlier;
  });
}

using Ranks = std::map<Rank, Seen>;

// What was found of each job. The launcher's memory and the rank's are the same.
std::map<std::string, Ranks> sort_by_job(Collected* all) {
  std::map<std::string, Ranks> jobs;
  for (Seen& seen : all->records) {
    Ranks& ranks = jobs[seen.record.job];
    const Rank rank = seen.record.rank;
    const auto known = ranks.find(rank);
    if (known == ranks.end() || known->second.record.opened_ns <= seen.record.opened_ns) {
      ranks.insert_or_assign(rank, std::move(seen));
    }
  }
  for (auto& [job, ranks] : jobs) leave_out_earlier_boots(&ranks, &all->notes);
  return jobs;
}

// What has become of a job that may go on, a moment later.
void look_again(Ranks* ranks) {
  const bool some_run = std::any_of(ranks->begin(), ranks->end(), [](const auto& each) {
    return each.second.life == recorder::Life::kRuns;
  });
  if (some_run) std::this_thread::sleep_for(kMoment);
  for (auto& [rank, seen] : *ranks) {
    std::string why;
    const UniqueFd file = seen.memory ? std::move(seen.memory) : open_file(seen.path, &why);
    if (file) recorder::update_record(file.get(), &seen.record);
  }
}

Job job_of(Ranks ranks, std::vector<std::string>* notes) {
  Job job;
  for (auto& [rank, seen] : ranks) {
    RankRecord& record = seen.record;
    if (record.damaged > 0) {
      notes->push_back(record.name + ": " + tools::counted(record.damaged, "row is", "rows are") +
                       " damaged and left out");
    }
    job.push_back({std::move(record), seen.life});
  }
  return job;
}

Result<Found> choose(Collected all, std::string job, const std::string& place) {
  const auto refuse = [&](std::string why) {
    for (const std::string& note : all.notes) why += "\n  " + note;
    return Status(ErrorCode::kInvalidArgument, why);
  };
  if (all.records.empty()) return refuse("no record of a rank in " + place);
  if (job.empty()) job = latest_job(all.records);
  std::map<std::string, Ranks> jobs = sort_by_job(&all);
  const auto chosen = jobs.find(job);
  if (chosen == jobs.end()) {
    for (const auto& [name, ranks] : jobs) all.notes.push_back("there is job " + name);
    if (all.jobs_left_out > 0) {
      all.notes.push_back("there are " + std::to_string(all.jobs_left_out) + " that began earlier");
    }
    return refuse("no record of job " + recorder::printable(job) + " in " + place);
  }
  look_again(&chosen->second);
  Found found{.others_left_out = all.jobs_left_out, .notes = std::move(all.notes)};
  found.witnesses = job_of(std::move(chosen->second), &found.notes);
  jobs.erase(chosen);
  for (auto& [name, ranks] : jobs) {
    found.others.push_back(job_of(std::move(ranks), &found.notes));
  }
  std::sort(found.others.begin(), found.others.end(),
            [](const Job& a, const Job& b) { return began_ns(a) < began_ns(b); });
  return found;
}

Result<RankRecord> header_of(const std::string& path) {
  std::string why;
  const UniqueFd file = open_file(path, &why);
  const std::string name = recorder::printable(path);
  return file ? recorder::read_header(file.get(), name)
              : Status(ErrorCode::kSystem, name + ": " + why);
}

// The job that is asked for, or else the one that began last, and of the others those that are
// listed: a folder may have records of hundreds, and a record takes half a megabyte here.
std::set<std::string> jobs_to_read(const std::vector<Seen>& headers, std::string job,
                                   std::size_t* left_out) {
  if (headers.empty()) return {};
  if (job.empty()) job = latest_job(headers);
  std::map<std::string, std::int64_t> began;
  for (const Seen& each : headers) {
    std::int64_t& time = began.try_emplace(each.record.job, INT64_MAX).first->second;
    time = std::min(time, each.record.opened_ns);
  }
  std::vector<std::pair<std::int64_t, std::string>> others;
  for (const auto& [name, time] : began) {
    if (name != job) others.emplace_back(time, name);
  }
  std::sort(others.rbegin(), others.rend());
  *left_out = others.size() > kOthersMax ? others.size() - kOthersMax : 0;
  others.resize(others.size() - *left_out);
  std::set<std::string> jobs{job};
  for (auto& [time, name] : others) jobs.insert(std::move(name));
  return jobs;
}

}  // namespace

std::int64_t began_ns(const Job& job) {
  return std::min_element(
             job.begin(), job.end(),
             [](const auto& a, const auto& b) { return a.record.opened_ns < b.record.opened_ns; })
      ->record.opened_ns;
}

recorder::Life life_of(const RankRecord& record) {
  static const topology::HostIdentity host = topology::read_host_identity();
  static const std::uint64_t pid_namespace = unisono::pid_namespace();
  const bool is_here =
      record.host == host.name && record.boot == host.boot && record.pid_namespace == pid_namespace;
  if (!is_here || record.process_start == 0) return recorder::Life::kUnknown;
  const ProcessFacts facts = facts_of_process(record.pid);
  if (facts.start != record.process_start || is_corpse(facts)) return recorder::Life::kGone;
  const bool is_held = facts.state == 'T' || facts.state == 't';
  return is_held ? recorder::Life::kHeld : recorder::Life::kRuns;
}

Result<Found> find_in_folder(const std::string& folder, const std::string& job) {
  UNISONO_ASSIGN(const std::vector<std::string> names, names_in(folder));
  Collected all;
  std::vector<Seen> headers;
  for (const std::string& name : names) {
    if (!name.ends_with(recorder::kFileSuffix)) continue;
    const std::string path = folder + "/" + name;
    Result<RankRecord> header = header_of(path);
    if (header) {
      headers.push_back({.record = std::move(*header), .path = path});
    } else if (header.error().code() != ErrorCode::kNotMember) {
      all.notes.push_back(header.error().message());
    }
  }
  const std::set<std::string> jobs = jobs_to_read(headers, job, &all.jobs_left_out);
  for (const Seen& each : headers) {
    if (jobs.contains(each.record.job)) collect(each.path, {}, &all);
  }
  return choose(std::move(all), job, folder);
}

Result<Found> find_of_process(int pid, const std::string& job) {
  if (facts_of_process(pid).state == 0) {
    return Status(ErrorCode::kInvalidArgument, "there is no process " + std::to_string(pid));
  }
  const std::vector<int> pids = all_pids();
  Collected own;
  for (const int each : family_of(pid, pids)) collect_of_process(each, &own);
  const std::string place = "process " + std::to_string(pid) +
                            " or what it has started (it may be another user's, not have "
                            "joined a job, or have UNISONO_RECORDER=off)";
  if (own.records.empty()) return choose(std::move(own), job, place);
  const std::string its_job = job.empty() ? latest_job(own.records) : job;
  std::set<std::string> jobs{its_job};
  for (const Seen& each : own.records) jobs.insert(each.record.job);
  // Ranks of other launchers, or of none, are on this host as well.
  Collected all;
  for (const int each : pids) collect_of_process(each, &all);
  std::erase_if(all.records, [&](const Seen& each) { return !jobs.contains(each.record.job); });
  return choose(std::move(all), its_job, place);
}

}  // namespace unisono::blame
