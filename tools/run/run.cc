// The launcher's main: from the command line to the job that the supervisor runs.
#include "tools/run/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/network.h"
#include "tools/common/environment.h"
#include "tools/common/invalid.h"
#include "tools/common/output.h"
#include "tools/run/arguments.h"
#include "tools/run/rank_environment.h"
#include "tools/run/rank_records.h"
#include "tools/run/store_server.h"
#include "tools/run/supervisor.h"
#include "topology/processors.h"

namespace unisono {
namespace {

using run::BindTo;
using run::JobFacts;
using run::RunArguments;

constexpr int kErrorStatus = 1;

// What a rank needs between fork and exec.
struct Place {
  topology::Processors processors;
  rlimit open_files{};
};

void prepare_rank(const void* context, const std::vector<int>& cores) {
  const auto* place = static_cast<const Place*>(context);
  ::setrlimit(RLIMIT_NOFILE, &place->open_files);
  // Binding is an optimisation; a system that refuses it runs the rank all the same.
  if (!cores.empty()) (void)topology::bind_this_thread(place->processors, cores).ok();
}

// Later open() calls must not land on a stream's number.
void open_missing_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

// Two pipes a rank and its record, and the clients of a store, soon exceed the usual soft limit of
// 1024; ranks get the original back. So many clients there are descriptors for.
std::size_t raise_open_files(int local_size, std::size_t clients, rlimit* before) {
  constexpr rlim_t kOwn = 64;
  if (::getrlimit(RLIMIT_NOFILE, before) != 0) return 1;
  const rlim_t of_ranks = 3 * static_cast<rlim_t>(local_size) + kOwn;
  rlimit wanted = *before;
  wanted.rlim_cur = std::max<rlim_t>(before->rlim_cur, of_ranks + clients);
  if (wanted.rlim_max != RLIM_INFINITY)
    wanted.rlim_cur = std::min(wanted.rlim_cur, wanted.rlim_max);
  const rlim_t granted =
      ::setrlimit(RLIMIT_NOFILE, &wanted) == 0 ? wanted.rlim_cur : before->rlim_cur;
  if (granted <= of_ranks) return 1;
  return std::min<std::size_t>(clients, granted - of_ranks);
}

Status check_job_key(const RunArguments& arguments, JobFacts& facts) {
  if (!arguments.job_key_file.empty()) {
    UNISONO_ASSIGN(run::JobKeyFile file, run::read_job_key(arguments.job_key_file));
    if (!file.warning.empty()) std::fprintf(stderr, "unisono run: %s\n", file.warning.c_str());
    facts.job_key = std::move(file.key);
    return Status();
  }
  const bool inherited = !tools::environment_value("UNISONO_JOB_KEY").value_or("").empty();
  if (arguments.node_count == 1 || inherited) return Status();
  return tools::invalid(
      "--nnodes {}: launchers on several nodes need a job key, the same for "
      "each, so that nobody else can join. Make one with\n"
      "  openssl rand -hex 32\n"
      "and give it to every launcher in UNISONO_JOB_KEY or with --job-key-file FILE",
      arguments.node_count);
}

Result<JobFacts> make_facts(const RunArguments& arguments) {
  JobFacts facts{.local_size = arguments.local_size,
                 .node_count = arguments.node_count,
                 .node_rank = arguments.node_rank,
                 .master_address = arguments.master_address,
                 .master_port = arguments.master_port,
                 .run_id = arguments.run_id,
                 .role = arguments.role};
  UNISONO_TRY(check_job_key(arguments, facts));
  if (facts.master_port == 0) {
    UNISONO_ASSIGN(facts.master_port, run::choose_free_port());
  }
  if (facts.run_id.empty() && facts.node_count > 1) {
    facts.run_id = fmt::format("{}:{}", facts.master_address, facts.master_port);
  } else if (facts.run_id.empty()) {
    UNISONO_ASSIGN(facts.run_id, run::make_run_id());
  }
  return facts;
}

Result<std::vector<int>> cores_for(const RunArguments& arguments,
                                   const topology::Processors& processors, int local_rank) {
  using topology::Width;
  const int core_count = static_cast<int>(processors.cores.size());
  const int size = arguments.local_size;
  if (arguments.bind_to == BindTo::kNone) return std::vector<int>();
  if (arguments.bind_to == BindTo::kCore) {
    if (size <= core_count) {
      return topology::recommended_binding(processors, local_rank, size, Width::kCore);
    }
    return tools::invalid(
        "--bind-to core: {} ranks, but this process may use {} cores; use --bind-to none", size,
        core_count);
  }
  // Several launchers on one machine, as in a rehearsal, would all choose the same cores.
  if (arguments.node_count > 1 && is_loopback(arguments.master_address)) return std::vector<int>();
  return topology::recommended_binding(processors, local_rank, size, Width::kShare);
}

Result<std::vector<run::RankSpec>> make_ranks(const RunArguments& arguments,
                                              const topology::Processors& processors,
                                              const run::RankRecords& records,
                                              const JobFacts& facts) {
  const std::vector<std::string> inherited = tools::inherited_environment();
  std::vector<run::RankSpec> ranks;
  for (int local_rank = 0; local_rank < facts.local_size; ++local_rank) {
    UNISONO_ASSIGN(std::vector<int> cores, cores_for(arguments, processors, local_rank));
    std::vector<std::string> environment = run::rank_environment(inherited, facts, local_rank);
    records.announce(local_rank, &environment);
    ranks.push_back({.rank = facts.rank_of(local_rank),
                     .local_rank = local_rank,
                     .environment = std::move(environment),
                     .cores = std::move(cores)});
  }
  return ranks;
}

// Everyone starts again at another place, where nothing of those before is met.
Status renew(const RunArguments& arguments, int restarts, JobFacts* facts) {
  facts->run_id += fmt::format(".{}", restarts);
  if (arguments.master_port == 0) {
    UNISONO_ASSIGN(facts->master_port, run::choose_free_port());
  }
  return Status();
}

Result<run::JobSpec> make_job(const RunArguments& arguments, const topology::Processors& processors,
                              run::RankRecords& records, run::StoreServer* store) {
  UNISONO_ASSIGN(JobFacts facts, make_facts(arguments));
  facts.max_restarts = arguments.max_restarts;
  if (store != nullptr) facts.store = store->name();
  run::JobSpec job{.command = arguments.command,
                   .world_size = facts.world_size(),
                   .prefix = arguments.prefix,
                   .keep_going = arguments.keep_going,
                   .max_restarts = arguments.max_restarts,
                   .restart = arguments.restart,
                   .store = store,
                   .report_time = arguments.report_time,
                   .grace_time = arguments.grace_time,
                   .records = &records};
  UNISONO_ASSIGN(job.ranks, make_ranks(arguments, processors, records, facts));
  job.ranks_again = [&arguments, &processors, &records, facts](
                        int restarts, bool rejoins) mutable -> Result<std::vector<run::RankSpec>> {
    facts.restarts = restarts;
    facts.rejoins = rejoins;
    if (!rejoins) UNISONO_TRY(renew(arguments, restarts, &facts));
    return make_ranks(arguments, processors, records, facts);
  };
  return job;
}

Result<int> run_job(RunArguments arguments) {
  Place place;
  if (auto processors = topology::read_processors()) {
    place.processors = std::move(*processors);
  } else if (arguments.bind_to == BindTo::kCore || arguments.local_size == 0) {
    return processors.error();
  }
  if (arguments.local_size == 0) arguments.local_size = place.processors.usable_core_count();
  const bool has_store = arguments.max_restarts > 0 && arguments.restart == run::Restart::kFailed;
  const std::size_t clients = raise_open_files(
      arguments.local_size, has_store ? run::StoreServer::kClientsMax : 0, &place.open_files);
  run::RankRecords records(arguments.local_size, tools::inherited_environment());
  std::optional<run::StoreServer> store;
  if (has_store) {
    UNISONO_ASSIGN(store, run::StoreServer::start(clients));
  }
  UNISONO_ASSIGN(run::JobSpec job,
                 make_job(arguments, place.processors, records, store ? &*store : nullptr));
  if (arguments.node_count > 1 && !arguments.master_address_given) {
    std::fprintf(stderr,
                 "unisono run: no --master-addr: using 127.0.0.1, which is right only when all "
                 "%d launchers run on this machine\n",
                 arguments.node_count);
  }
  job.prepare = prepare_rank;
  job.prepare_context = &place;
  return run::supervise(job);
}

}  // namespace

int run_main(int argc, char** argv) {
  open_missing_streams();
  auto parsed = run::parse_arguments(argc, argv);
  if (const auto* early = std::get_if<run::EarlyExit>(&parsed)) {
    std::fputs(early->text.c_str(), early->status == 0 ? stdout : stderr);
    return tools::finish_output("unisono run", early->status);
  }
  for (const std::string& note : std::get<RunArguments>(parsed).notes) {
    std::fprintf(stderr, "unisono run: %s\n", note.c_str());
  }
  const Result<int> status = run_job(std::get<RunArguments>(std::move(parsed)));
  if (status) return *status;
  return tools::fail("unisono run", status.error(), kErrorStatus);
}

}  // namespace unisono
