// The launcher's main: from the command line to the job that the supervisor runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/network.h"
#include "base/unproven_peers.h"
#include "config/config.h"
#include "tools/common/commands.h"
#include "tools/common/environment.h"
#include "tools/common/invalid.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/run/arguments.h"
#include "tools/run/asking_control.h"
#include "tools/run/deciding_control.h"
#include "tools/run/node_messages.h"
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

// Two pipes a rank and its record, other launchers, and the clients of a store, soon exceed the
// usual soft limit of 1024; ranks get the original back. So many clients there are descriptors for.
std::size_t raise_open_files(const RunArguments& arguments, std::size_t clients, rlimit* before) {
  constexpr rlim_t kOwn = 64;
  if (::getrlimit(RLIMIT_NOFILE, before) != 0) return 1;
  rlim_t needed = 3 * static_cast<rlim_t>(arguments.local_size) + kOwn;
  if (arguments.have_launchers_to_meet()) {
    needed += static_cast<rlim_t>(arguments.node_count) + kStrangersMax;
  }
  rlimit wanted = *before;
  wanted.rlim_cur = std::max<rlim_t>(before->rlim_cur, needed + clients);
  if (wanted.rlim_max != RLIM_INFINITY)
    wanted.rlim_cur = std::min(wanted.rlim_cur, wanted.rlim_max);
  const rlim_t granted =
      ::setrlimit(RLIMIT_NOFILE, &wanted) == 0 ? wanted.rlim_cur : before->rlim_cur;
  if (granted <= needed) return 1;
  return std::min<std::size_t>(clients, granted - needed);
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
                 .role = arguments.role,
                 .max_restarts = arguments.max_restarts};
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
        "--bind-to core: {} ranks, but this process may use {}; use --bind-to none", size,
        tools::counted(core_count, "core", "cores"));
  }
  // Several launchers on one machine, as in a rehearsal, would all choose the same cores.
  if (arguments.node_count > 1 && is_loopback(arguments.master_address)) return std::vector<int>();
  return topology::recommended_binding(processors, local_rank, size, Width::kShare);
}

// What a launcher keeps until its job is over.
struct Running {
  RunArguments arguments;
  JobFacts facts;
  Place place;
  std::vector<std::vector<int>> cores;  // by local rank
  std::optional<run::RankRecords> records;
  std::optional<run::StoreServer> store;
};

// Of the first start, and of one after so many restarts: at another place, where nothing of those
// before is met.
Result<run::MeetingPoint> next_meeting(const Running& job, int restarts) {
  run::MeetingPoint meeting{restarts, job.facts.master_port, job.facts.run_id};
  if (restarts > 0) meeting.run_id += fmt::format(".{}", restarts);
  if (job.arguments.have_launchers_to_meet()) {
    UNISONO_ASSIGN(meeting.port, run::choose_free_port_pair());
  } else if (restarts > 0 && job.arguments.master_port == 0) {
    UNISONO_ASSIGN(meeting.port, run::choose_free_port());
  }
  return meeting;
}

std::vector<run::RankSpec> make_ranks(const Running& job, const run::MeetingPoint& meeting,
                                      bool rejoins) {
  const std::vector<std::string> inherited = tools::inherited_environment();
  JobFacts facts = job.facts;
  facts.master_port = meeting.port;
  facts.run_id = meeting.run_id;
  facts.restarts = meeting.restarts;
  facts.rejoins = rejoins;
  std::vector<run::RankSpec> ranks;
  for (int local_rank = 0; local_rank < facts.local_size; ++local_rank) {
    std::vector<std::string> environment = run::rank_environment(inherited, facts, local_rank);
    job.records->announce(local_rank, &environment);
    ranks.push_back({.rank = facts.rank_of(local_rank),
                     .local_rank = local_rank,
                     .environment = std::move(environment),
                     .cores = job.cores[static_cast<std::size_t>(local_rank)]});
  }
  return ranks;
}

run::JobSpec make_job(Running& job) {
  return {.command = job.arguments.command,
          .local_size = job.cores.size(),
          .world_size = job.facts.world_size(),
          .place = job.arguments.have_launchers_to_meet()
                       ? fmt::format(" on node {}", job.facts.node_rank)
                       : "",
          .reads_input = job.facts.node_rank == 0,
          .prefix = job.arguments.prefix,
          .keep_going = job.arguments.keep_going,
          .ranks_at = [&job](const run::MeetingPoint& meeting,
                             bool rejoins) { return make_ranks(job, meeting, rejoins); },
          .report_time = job.arguments.report_time,
          .grace_time = job.arguments.grace_time,
          .prepare = prepare_rank,
          .prepare_context = &job.place,
          .records = &*job.records};
}

// What the launchers of several nodes meet by. Ranks read the settings too, and say what is wrong.
Result<run::NodeOptions> node_options(const Running& job, const run::JobShape& shape) {
  std::vector<Status> wrong;
  const Config config = Config::from_environment(&wrong);
  if (job.facts.run_id.size() > run::kRunIdBytesMax / 2) {
    return tools::invalid("--rdzv-id: longer than {} bytes", run::kRunIdBytesMax / 2);
  }
  const std::string_view text =
      job.facts.job_key.empty() ? config.job_key.view() : job.facts.job_key.view();
  UNISONO_ASSIGN(const JobKey key, JobKey::from_text(text));
  return run::NodeOptions{.shape = shape,
                          .node = job.facts.node_rank,
                          .address = job.facts.master_address,
                          .port = static_cast<std::uint16_t>(job.facts.master_port),
                          .interface_address = config.interface_address,
                          .key = key,
                          .run_id = job.facts.run_id,
                          .patience = config.timeout};
}

// Of several nodes each launcher but that of node 0 waits here until it is taken in.
Result<std::unique_ptr<run::JobControl>> make_control(Running& job) {
  const RunArguments& arguments = job.arguments;
  run::StoreServer* const store = job.store ? &*job.store : nullptr;
  run::JobDecisions::Setup setup{
      .shape = {arguments.node_count, arguments.local_size, arguments.max_restarts,
                arguments.restart},
      .self = arguments.node_rank,
      .is_alone = !arguments.have_launchers_to_meet(),
      .keep_going = arguments.keep_going,
      .next_meeting = [&job](int restarts) { return next_meeting(job, restarts); }};
  if (setup.is_alone) {
    return std::unique_ptr<run::JobControl>(
        std::make_unique<run::DecidingControl>(std::move(setup), store));
  }
  UNISONO_ASSIGN(const run::NodeOptions options, node_options(job, setup.shape));
  if (arguments.node_rank > 0) return run::AskingControl::join(options, store);
  setup.patience = options.patience;
  setup.report_time = arguments.report_time;
  setup.grace_time = arguments.grace_time;
  return run::DecidingControl::listen(std::move(setup), store, options);
}

Result<int> run_job(RunArguments arguments) {
  Running job{.arguments = std::move(arguments)};
  if (auto processors = topology::read_processors()) {
    job.place.processors = std::move(*processors);
  } else if (job.arguments.bind_to == BindTo::kCore || job.arguments.local_size == 0) {
    return processors.error();
  }
  int& local_size = job.arguments.local_size;
  if (local_size == 0) local_size = job.place.processors.usable_core_count();
  for (int local_rank = 0; local_rank < local_size; ++local_rank) {
    UNISONO_ASSIGN(std::vector<int> cores,
                   cores_for(job.arguments, job.place.processors, local_rank));
    job.cores.push_back(std::move(cores));
  }
  const bool has_store =
      job.arguments.max_restarts > 0 && job.arguments.restart == run::Restart::kFailed;
  const std::size_t clients = raise_open_files(
      job.arguments, has_store ? run::StoreServer::kClientsMax : 0, &job.place.open_files);
  job.records.emplace(local_size, tools::inherited_environment());
  UNISONO_ASSIGN(job.facts, make_facts(job.arguments));
  if (has_store) {
    UNISONO_ASSIGN(job.store, run::StoreServer::start(clients));
    job.facts.store = job.store->name();
  }
  if (job.arguments.node_count > 1 && !job.arguments.master_address_given) {
    std::fprintf(stderr,
                 "unisono run: no --master-addr: using 127.0.0.1, which is right only when all "
                 "%d launchers run on this machine\n",
                 job.arguments.node_count);
  }
  UNISONO_ASSIGN(const std::unique_ptr<run::JobControl> control, make_control(job));
  return run::supervise(make_job(job), *control);
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
