#include "tools/run/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "tools/common/command_line.h"
#include "tools/common/invalid.h"
#include "tools/common/sizes.h"

namespace unisono::run {
namespace {

using tools::parse_integer;
using tools::parse_seconds;

constexpr int kUsageStatus = 2;
constexpr int kLocalSizeMax = 1024;
constexpr int kNodeCountMax = 65536;
constexpr int kRestartsMax = 1'000'000;
constexpr int kMasterPortOfSeveralNodes = 29500;
constexpr double kWaitSecondsMax = 24 * 3600;
constexpr std::size_t kAddressBytesMax = 255;

constexpr const char* kDescription =
    "Starts one process for each rank, prefixes what they print with \"[rank]\", and ends the job\n"
    "when a rank fails. Ranks find each other through RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR "
    "and\n"
    "MASTER_PORT, as under torchrun; exit status is that of the rank that failed first.";

// Flags of torchrun that a command line may bring along, and what to do instead.
constexpr std::pair<std::string_view, const char*> kUnsupported[] = {
    {"-m", "write the command: python -m MODULE"},
    {"--module", "write the command: python -m MODULE"},
    {"--log-dir", "redirect the launcher's own output"},
    {"--tee", "redirect the launcher's own output"},
    {"-t", "redirect the launcher's own output"},
    {"--redirects", "redirect the launcher's own output"},
    {"-r", "redirect the launcher's own output"},
    {"--local-ranks-filter", "redirect the launcher's own output"},
    {"--log-line-prefix-template", "lines begin with the rank, or by --no-prefix with nothing"},
    {"--run-path", "write the command"},
    {"--local-addr", "UNISONO_INTERFACE says where ranks listen"},
    {"--numa-binding", "--bind-to places ranks"},
    {"--signals-to-handle", "ranks get those that --help names"},
};

constexpr const char* kExamples = R"(Examples:
  unisono run -n 4 ./train                   four ranks on this machine
  unisono run -n 4 -- python train.py --lr 1 the command and its flags, after --
  unisono run -n 8 --bind-to core ./bench    one core each
  unisono run -n 4 --keep-going ./survivors  let the others go on when a rank fails
  unisono run -n 4 --max-restarts 3 ./grow   and start the failed rank again, to rejoin them

Two machines, four ranks each; make a key once and have it on both:
  (umask 077; openssl rand -hex 32 > job.key)
  unisono run --nnodes 2 --node-rank 0 -n 4 --master-addr node0 --job-key-file job.key ./train
  unisono run --nnodes 2 --node-rank 1 -n 4 --master-addr node0 --job-key-file job.key ./train

With --max-restarts, the same on both, the launchers meet at --master-port, and the ranks at another
port, which the launcher of node 0 chooses. A launcher that is lost is one failure: start it again.

Signals: INT, TERM, HUP, QUIT, USR1 and USR2 reach every rank; a second Ctrl-C kills at once. Ranks
that outlive TERM or HUP by --timeout-report get SIGTERM (again), and SIGKILL 5 s later.

Torchrun's flags are taken, but for --nproc-per-node=gpu and those about modules, logs and places,
which are answered with what to do instead.)";

// Shows one spelling of each flag: those with '_' and the negative forms are only accepted.
class HelpText : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool) const override {
    std::string names;
    for (const std::string& name : option->get_snames()) names += "-" + name + ",";
    for (const std::string& name : option->get_lnames()) {
      if (name.find('_') == std::string::npos) names += "--" + name + ",";
    }
    names.pop_back();
    return names;
  }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: unisono run [flags] [--] command [arguments]\n";
  }
};

// What the user typed, before it is checked. Everything is text so that errors are worded here.
struct Typed {
  std::string local_size = "1";
  std::string node_count = "1";
  std::string node_rank;
  std::string master_address;
  std::string master_port;
  std::string endpoint;
  std::string backend;
  std::string rendezvous_settings;
  std::string ignored;
  std::string restarts = "0";
  std::string restart = "failed";
  std::string bind_to = "auto";
  std::string report_time = "5";
  std::string grace_time = "5";
  bool standalone = false;
  bool no_python = false;
};

void declare_shape_options(CLI::App& app, Typed& typed, RunArguments& arguments) {
  app.add_option("-n,--nproc-per-node,--nproc_per_node", typed.local_size,
                 "Ranks on this machine; 'auto': one for each usable core (default 1)")
      ->option_text("N");
  app.add_option("--nnodes", typed.node_count, "Machines, each with its own launcher (default 1)")
      ->option_text("N");
  app.add_option("--node-rank,--node_rank", typed.node_rank, "Which of them this is, from 0")
      ->option_text("N");
  app.add_option("--master-addr,--master_addr", typed.master_address,
                 "Name or address of machine 0 (default 127.0.0.1)")
      ->option_text("HOST");
  app.add_option("--master-port,--master_port", typed.master_port,
                 "Port on machine 0 (default: a free one; 29500 for several machines)")
      ->option_text("PORT");
  app.add_option("--rdzv-id,--rdzv_id", arguments.run_id, "Name of this run, equal on all machines")
      ->option_text("NAME");
  app.add_option("--rdzv-endpoint,--rdzv_endpoint", typed.endpoint,
                 "HOST:PORT, instead of --master-addr and --master-port")
      ->option_text("HOST:PORT");
  app.add_option("--rdzv-backend,--rdzv_backend", typed.backend,
                 "Accepted for torchrun's sake: static or c10d")
      ->option_text("NAME");
  app.add_option("--rdzv-conf,--rdzv_conf", typed.rendezvous_settings,
                 "Accepted for torchrun's sake, and ignored; so are --monitor-interval, "
                 "--start-method and --event-log-handler")
      ->option_text("TEXT");
  app.add_option(
         "--monitor-interval,--monitor_interval,--start-method,--start_method,"
         "--event-log-handler,--event_log_handler",
         typed.ignored)
      ->group("");
  app.add_option("--max-restarts,--max_restarts", typed.restarts,
                 "Starts after failures, all ranks together (default 0)")
      ->option_text("N");
  app.add_option("--role", arguments.role, "What ranks read from ROLE_NAME (default 'default')")
      ->option_text("NAME");
  app.add_flag("--no-python,--no_python", typed.no_python,
               "Accepted for torchrun's sake: the command is always run as it is");
  app.add_flag("--standalone", typed.standalone, "One machine, a free port: the default");
  app.add_option("--job-key-file,--job_key_file", arguments.job_key_file,
                 "File that holds the job key, instead of UNISONO_JOB_KEY in the environment")
      ->option_text("FILE");
}

void declare_behaviour_options(CLI::App& app, Typed& typed, RunArguments& arguments) {
  app.add_option("--bind-to,--bind_to", typed.bind_to,
                 "auto (default): an equal share of the cores each, where there are enough;\n"
                 "core: one core each; none")
      ->option_text("auto|core|none");
  app.add_flag("--prefix,--tag-output,--tag_output,!--no-prefix,!--no_prefix", arguments.prefix,
               "Begin each line with \"[rank] \" (default); --no-prefix passes output on as it is");
  app.add_option("--restart", typed.restart,
                 "Who is started again when a rank fails and restarts are left:\n"
                 "failed (default): that rank, whose init() rejoins the others in their grow();\n"
                 "everyone where they have not met in init() yet, or none of them is left (as of\n"
                 "a program without grow(), which ends of the same failure: both count as one);\n"
                 "all: everyone, as torchrun does")
      ->option_text("failed|all");
  app.add_flag("--keep-going,--keep_going", arguments.keep_going,
               "A failing rank ends nobody else");
  app.add_option("--timeout-report,--timeout_report", typed.report_time,
                 "Seconds the other ranks have to report and end by themselves (default 5)")
      ->option_text("SECONDS");
  // The time from SIGTERM to SIGKILL: for tests and the impatient, so not in the help.
  app.add_option("--grace", typed.grace_time)->group("");
}

Status bad_endpoint(const std::string& endpoint, const char* why) {
  return tools::invalid("--rdzv-endpoint: '{}' {}; write HOST:PORT", endpoint.substr(0, 64), why);
}

Status take_endpoint(const std::string& endpoint, Typed& typed) {
  std::string host = endpoint;
  std::string port;
  // An IPv6 address has colons of its own, so it stands in brackets.
  const std::size_t bracket = endpoint.starts_with('[') ? endpoint.find(']') : 0;
  if (bracket == std::string::npos) return bad_endpoint(endpoint, "has no ']'");
  if (const std::size_t colon = endpoint.find(':', bracket); colon != std::string::npos) {
    host = endpoint.substr(0, colon);
    port = endpoint.substr(colon + 1);
    if (port.find(':') != std::string::npos) {
      return bad_endpoint(endpoint,
                          "has several colons; an IPv6 address needs brackets, as in "
                          "[::1]:29400");
    }
    const auto number = parse_integer(port, "", 0, 65535);
    if (!number) return bad_endpoint(endpoint, "has no port from 0 to 65535 after the colon");
  }
  if (bracket != 0) {
    if (bracket + 1 != host.size()) return bad_endpoint(endpoint, "has text after the ']'");
    host = host.substr(1, bracket - 1);
  }
  if (host.empty()) return bad_endpoint(endpoint, "has no host");
  if (typed.master_address.empty()) typed.master_address = host;
  if (typed.master_port.empty()) typed.master_port = port;
  return Status();
}

Status take_nodes(const Typed& typed, RunArguments& arguments) {
  std::string count = typed.node_count;
  // torchrun's elastic form MIN:MAX is fine when both are the same number.
  if (const std::size_t colon = count.find(':'); colon != std::string::npos) {
    if (count.substr(0, colon) != count.substr(colon + 1)) {
      return tools::invalid(
          "--nnodes: a range is not supported; give the exact number of machines");
    }
    count.resize(colon);
  }
  UNISONO_ASSIGN(const std::int64_t nodes, parse_integer(count, "--nnodes", 1, kNodeCountMax));
  arguments.node_count = static_cast<int>(nodes);
  if (typed.standalone && nodes > 1) {
    return tools::invalid("--standalone means one machine; drop --nnodes");
  }
  if (typed.node_rank.empty() && nodes > 1) {
    return tools::invalid("--nnodes {0} needs --node-rank: 0 on the first machine, {1} on the last",
                          nodes, nodes - 1);
  }
  if (!typed.node_rank.empty()) {
    UNISONO_ASSIGN(const std::int64_t node,
                   parse_integer(typed.node_rank, "--node-rank", 0, nodes - 1));
    arguments.node_rank = static_cast<int>(node);
  }
  return Status();
}

Status take_master(const Typed& typed, RunArguments& arguments) {
  if (!typed.master_address.empty()) {
    if (typed.master_address.size() > kAddressBytesMax) {
      return tools::invalid("--master-addr: longer than {} bytes", kAddressBytesMax);
    }
    const std::string& given = typed.master_address;
    const bool is_bracketed = given.size() > 2 && given.front() == '[' && given.back() == ']';
    arguments.master_address = is_bracketed ? given.substr(1, given.size() - 2) : given;
    arguments.master_address_given = true;
  }
  if (!typed.master_port.empty()) {
    UNISONO_ASSIGN(const std::int64_t port,
                   parse_integer(typed.master_port, "--master-port", 0, 65535));
    arguments.master_port = static_cast<int>(port);
  }
  if (arguments.node_count > 1 && arguments.master_port == 0) {
    arguments.master_port = kMasterPortOfSeveralNodes;
  }
  return Status();
}

Result<BindTo> take_place(const std::string& text) {
  if (text == "auto") return BindTo::kAuto;
  if (text == "core") return BindTo::kCore;
  if (text == "none") return BindTo::kNone;
  return tools::invalid("--bind-to: '{}' is not auto, core or none", text);
}

Status take_restarts(const Typed& typed, RunArguments& arguments) {
  UNISONO_ASSIGN(const std::int64_t restarts,
                 parse_integer(typed.restarts, "--max-restarts", 0, kRestartsMax));
  arguments.max_restarts = static_cast<int>(restarts);
  if (typed.restart != "failed" && typed.restart != "all") {
    return tools::invalid("--restart: '{}' is not failed or all", typed.restart.substr(0, 64));
  }
  arguments.restart = typed.restart == "all" ? Restart::kAll : Restart::kFailed;
  return Status();
}

Result<Duration> take_seconds(const std::string& text, const char* what) {
  UNISONO_ASSIGN(const double seconds, parse_seconds(text, what, kWaitSecondsMax));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Status unknown_flag(const std::string& flag) {
  std::string name = flag.substr(0, flag.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& [unsupported, remedy] : kUnsupported) {
    if (name != unsupported) continue;
    return tools::invalid("torchrun's {} is not supported; {}", name, remedy);
  }
  return tools::invalid("unknown flag {}", flag);
}

// What torchrun takes and this launcher has no use for.
Status take_ignored(const Typed& typed, RunArguments& arguments) {
  if (!typed.backend.empty() && typed.backend != "static" && typed.backend != "c10d") {
    return tools::invalid("--rdzv-backend: '{}' is not static or c10d", typed.backend);
  }
  if (!typed.rendezvous_settings.empty()) arguments.notes.push_back("--rdzv-conf is ignored");
  if (!typed.ignored.empty()) {
    arguments.notes.push_back(
        "--monitor-interval, --start-method and --event-log-handler are ignored");
  }
  return Status();
}

// prefix_command leaves everything from the first word it does not know: the command, or a flag
// that does not exist.
Status take_command(std::vector<std::string> rest, RunArguments& arguments) {
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest.front().starts_with("-")) {
    return unknown_flag(rest.front());
  }
  if (rest.empty() || rest.front().empty()) {
    return tools::invalid("no command to run");
  }
  arguments.command = std::move(rest);
  return Status();
}

Status take_all(Typed typed, std::vector<std::string> rest, RunArguments& arguments) {
  if (typed.local_size == "auto" || typed.local_size == "cpu") {
    arguments.local_size = 0;
  } else if (typed.local_size == "gpu") {
    return tools::invalid("--nproc-per-node: 'gpu' is not supported; give the number of GPUs");
  } else {
    UNISONO_ASSIGN(const std::int64_t size,
                   parse_integer(typed.local_size, "--nproc-per-node", 1, kLocalSizeMax));
    arguments.local_size = static_cast<int>(size);
  }
  UNISONO_TRY(take_ignored(typed, arguments));
  if (!typed.endpoint.empty()) UNISONO_TRY(take_endpoint(typed.endpoint, typed));
  UNISONO_ASSIGN(arguments.bind_to, take_place(typed.bind_to));
  UNISONO_TRY(take_nodes(typed, arguments));
  UNISONO_TRY(take_master(typed, arguments));
  UNISONO_TRY(take_restarts(typed, arguments));
  UNISONO_ASSIGN(arguments.report_time, take_seconds(typed.report_time, "--timeout-report"));
  UNISONO_ASSIGN(arguments.grace_time, take_seconds(typed.grace_time, "--grace"));
  return take_command(std::move(rest), arguments);
}

EarlyExit usage_error(const std::string& message) {
  return {kUsageStatus, fmt::format("unisono run: {}\nSee: unisono run --help\n", message)};
}

}  // namespace

std::variant<RunArguments, EarlyExit> parse_arguments(int argc, char** argv) {
  CLI::App app(kDescription, "unisono run");
  app.formatter(std::make_shared<HelpText>());
  app.footer(kExamples);
  app.prefix_command();
  // As under torchrun, so that a script can append to what it was given.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Typed typed;
  RunArguments arguments;
  declare_shape_options(app, typed, arguments);
  declare_behaviour_options(app, typed, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    return usage_error(tools::words_of(error));
  }
  const Status taken = take_all(typed, app.remaining(), arguments);
  if (!taken.ok()) return usage_error(taken.message());
  return arguments;
}

}  // namespace unisono::run
