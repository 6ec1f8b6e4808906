#include "config/config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/limits.h"
#include "base/per_process.h"
#include "config/environment.h"
#include "config/value_text.h"

extern char** environ;

namespace unisono {
namespace {

using namespace config;

// How a variable's text is parsed into Config and shown.
struct Value {
  Status (*parse)(std::string_view text, Config* config);
  std::string (*show)(const Config& config);
};

struct Row {
  ConfigVariable variable;
  Value value;
};

constexpr std::size_t kShownMax = 64;  // of a name that is none
constexpr std::string_view kCudaUses[]{"off", "auto", "require"};
constexpr std::string_view kWaits[]{"auto", "spin", "yield", "sleep"};
constexpr std::string_view kLevels[]{"debug", "info", "warning", "error", "off"};

// "auto|shm|...", as a list of choices stands in the table.
template <const auto& kChoices>
constexpr auto kJoined = [] {
  std::array<char, 64> text{};
  std::size_t at = 0;
  for (const std::string_view choice : kChoices) {
    if (at > 0) text[at++] = '|';
    for (const char c : choice) text[at++] = c;
  }
  return text;
}();
template <const auto& kChoices>
constexpr std::string_view choices_of() {
  return kJoined<kChoices>.data();
}

Status parse_silence(std::string_view text, std::chrono::milliseconds* out) {
  constexpr std::chrono::milliseconds kSilenceMin{200};
  *out = std::chrono::milliseconds(0);
  if (text == "0") return Status();
  UNISONO_TRY(parse_duration(text, out));
  return *out >= kSilenceMin ? Status() : invalid("0, or a time of at least 200ms such as 3s");
}

constexpr std::string_view kDefaultCache = "$XDG_CACHE_HOME/unisono, ~/.cache/unisono";

// kDefaultCache; "off" where the environment names no such folder.
void set_default_cache(Config* config) {
  const auto is_absolute = [](const char* path) { return path != nullptr && *path == '/'; };
  config->cache = "off";
  if (const char* const cache = read_own_variable("XDG_CACHE_HOME"); is_absolute(cache)) {
    config->cache_base = cache;
    config->cache = config->cache_base + "/unisono";
  } else if (const char* const home = read_own_variable("HOME"); is_absolute(home)) {
    config->cache_base = home;
    config->cache = config->cache_base + "/.cache/unisono";
  }
}

// The value of one member, or of a member of a member, of Config.
template <auto kParse, auto kShow, auto... kMembers>
constexpr Value kValue{
    [](std::string_view text, Config* config) { return kParse(text, &(*config.*....*kMembers)); },
    [](const Config& config) -> std::string { return kShow((config.*....*kMembers)); }};

Status parse_text(std::string_view text, std::string* out) {
  *out = text;
  return Status();
}
template <auto kCheck>
Status parse_checked(std::string_view text, std::string* out) {
  UNISONO_TRY(kCheck(text));
  return parse_text(text, out);
}
template <const auto& kChoices>
Status parse_one_of(std::string_view text, std::string* out) {
  return parse_choice(text, kChoices, out);
}
template <int kLow, int kHigh>
Status parse_within(std::string_view text, int* out) {
  return parse_integer(text, kLow, kHigh, out);
}

Status parse_connect(std::string_view text, VerbsConnect* out) {
  std::string name;
  UNISONO_TRY(parse_choice(text, kVerbsConnectNames, &name));
  *out = name == "cm" ? VerbsConnect::kCm : VerbsConnect::kExchange;
  return Status();
}
std::string show_connect(VerbsConnect connect) {
  return std::string(kVerbsConnectNames[static_cast<std::size_t>(connect)]);
}

const std::string& show_text(const std::string& text) { return text; }
std::string show_switch(bool is_on) { return is_on ? "on" : "off"; }
template <typename Number>
std::string show_number(Number number) {
  return std::to_string(number);
}

template <auto... kMembers>
constexpr Value kText = kValue<parse_text, show_text, kMembers...>;
template <auto kCheck, auto... kMembers>
constexpr Value kCheckedText = kValue<parse_checked<kCheck>, show_text, kMembers...>;
template <const auto& kChoices, auto... kMembers>
constexpr Value kChoice = kValue<parse_one_of<kChoices>, show_text, kMembers...>;
template <auto... kMembers>
constexpr Value kSwitch = kValue<parse_switch, show_switch, kMembers...>;
template <int kLow, int kHigh, auto... kMembers>
constexpr Value kInteger = kValue<parse_within<kLow, kHigh>, show_number<int>, kMembers...>;
template <auto... kMembers>
constexpr Value kBytes = kValue<parse_bytes, show_number<std::size_t>, kMembers...>;
template <auto... kMembers>
constexpr Value kPositiveBytes =
    kValue<parse_positive_bytes, show_number<std::size_t>, kMembers...>;
template <auto... kMembers>
constexpr Value kDuration = kValue<parse_duration, show_duration, kMembers...>;

const Row kRows[]{
    {{"UNISONO_RENDEZVOUS", "url", "env://",
      "where the ranks meet: env://, tcp://host:port, file:///path or alone://"},
     kText<&Config::rendezvous>},
    {{"UNISONO_JOB_KEY", "text", "",
      "the job's secret, 64 hex digits or at least 16 characters; needed across hosts", true},
     {[](std::string_view text, Config* c) {
        if (text.size() < 16)
          return invalid("at least 16 characters (openssl rand -hex 32 makes a good one)");
        c->job_key = SecretText(text);
        return Status();
      },
      [](const Config& c) { return std::string(c.job_key.empty() ? "(not set)" : "(set)"); }}},
    {{"UNISONO_PORT", "port", "0",
      "the listening port: of rank 0's arbiter when ranks meet over TCP (0: MASTER_PORT + 1)"},
     kInteger<0, 65535, &Config::port>},
    {{"UNISONO_INTERFACE", "address", "",
      "numeric address to listen on and to tell the peers; empty: all of this host's"},
     kText<&Config::interface_address>},
    {{"UNISONO_LAUNCHER_STORE", "name", "",
      "the launcher's key-value store; set by `unisono run --max-restarts`"},
     kText<&Config::launcher_store>},
    {{"UNISONO_REJOIN", "on|off", "off",
      "whether init() rejoins a job that goes on; set by `unisono run` for a rank that it has "
      "started again"},
     kSwitch<&Config::rejoin>},
    {{"UNISONO_TRANSPORT", choices_of<kTransports>(), "auto",
      "how bytes move; auto: shared memory within a host, verbs or else TCP between hosts"},
     kChoice<kTransports, &Config::transport>},
    {{"UNISONO_ACCESS", choices_of<kAccessPathNames>(), "auto",
      "how other ranks of the host read this rank's large buffers; auto: in place where they can, "
      "else as the first calls of each collective and size show to be fastest"},
     {[](std::string_view text, Config* c) {
        return parse(text, &c->access)
                   ? Status()
                   : invalid("one of " + config::list_choices(kAccessPathNames));
      },
      [](const Config& c) { return std::string(name_of(c.access)); }}},
    {{"UNISONO_LEVELS", "auto|off|numa|l3|2..128", "auto",
      "how the ranks of a host are grouped for large all_reduce and reduce, which then cross "
      "between groups once: by NUMA node, by third-level cache, or so many in a row (a power of "
      "two); auto: by those that at least halve what crosses; the same on all ranks"},
     {[](std::string_view text, Config* c) {
        return parse(text, &c->levels)
                   ? Status()
                   : invalid("one of " + config::list_choices(kLevelsNames) +
                             ", or a power of two from " + std::to_string(kLevelsRanksMin) +
                             " to " + std::to_string(kLevelsRanksMax));
      },
      [](const Config& c) { return text_of(c.levels); }}},
    {{"UNISONO_WAIT", choices_of<kWaits>(), "auto",
      "how a waiting rank waits; auto: by ranks per core, and by who else turns out to want the "
      "core"},
     kChoice<kWaits, &Config::wait>},
    {{"UNISONO_ORDER", "any|canonical|exact", "any",
      "the least that every reduction keeps: canonical and exact give the same bits for any "
      "algorithm, transport and size; the same on all ranks"},
     {[](std::string_view text, Config* c) {
        return parse(text, &c->order) ? Status() : invalid("one of any, canonical, exact");
      },
      [](const Config& c) { return std::string(name_of(c.order)); }}},
    {{"UNISONO_TIMEOUT", "time", "10min",
      "deadline of rendezvous and of every call without its own"},
     kDuration<&Config::timeout>},
    {{"UNISONO_WARN_AFTER", "time", "30s",
      "one warning with the ranks that have not arrived, after waiting this long"},
     kDuration<&Config::warn_after>},
    {{"UNISONO_SILENCE", "time", "3s",
      "a process of the job that is not heard for so long has failed, as one that is stopped, and "
      "so has a TCP link that carries nothing; 0: never; else at least 200ms; the same on all "
      "ranks"},
     {[](std::string_view text, Config* c) { return parse_silence(text, &c->silence); },
      [](const Config& c) {
        return c.silence.count() == 0 ? std::string("0") : show_duration(c.silence);
      }}},
    {{"UNISONO_ALGORITHM", "collective=name,...", "",
      "algorithm per collective, for example all_reduce=ring; the same on all ranks"},
     kText<&Config::algorithm>},
    {{"UNISONO_MEASURE", "on|off", "on",
      "ranks on several hosts measure the links between these when they meet, and algorithms and "
      "chunks of large messages follow from it; the same on all ranks"},
     kSwitch<&Config::measure>},
    {{"UNISONO_CACHE", "directory|off", kDefaultCache,
      "where jobs keep for the next ones what their ranks measured, and which ways to move bytes "
      "were the fastest on this machine; off: nowhere, and nothing is measured; the default is "
      "not used on network file systems"},
     {[](std::string_view text, Config* c) {
        if (text != "off" && text.find('/') == std::string_view::npos) {
          return invalid("off or a directory, one of here as ./name");
        }
        // A program may go to another folder before the facts are written.
        std::error_code error;
        const auto absolute = std::filesystem::absolute(text, error).lexically_normal();
        c->cache = text == "off" || error ? std::string(text) : absolute.string();
        c->cache_base.clear();
        return Status();
      },
      [](const Config& c) { return c.cache.empty() ? std::string(kDefaultCache) : c.cache; }}},
    {{"UNISONO_TUNING", "path", "", "selection table written by `unisono tune`"},
     kText<&Config::tuning>},
    {{"UNISONO_SCRATCH_BYTES", "size", "256M",
      "bound of a rank's scratch memory for plans, and of what staged calls use at a time"},
     kBytes<&Config::scratch_bytes>},
    {{"UNISONO_EAGER_BYTES", "size", "0",
      "largest message sent without a grant; 0: the transport's own; the same on all ranks"},
     kBytes<&Config::eager_bytes>},
    {{"UNISONO_STREAMS", "0..8", "0",
      "connections per peer for large messages; 0: one within a host, two between hosts"},
     kInteger<0, kStreamsMax, &Config::streams>},
    {{"UNISONO_CHECKSUM", "on|off", "off",
      "whether what ranks send each other over sockets and RDMA carries checksums, so that bytes "
      "which change on the way fail the call; not what ranks of a host share in memory; the same "
      "on all ranks"},
     kSwitch<&Config::checksum>},
    {{"UNISONO_VERBS_DEVICES", "device[:port],...", "",
      "RDMA devices or ports to use; ^ before the list: all but these; empty: all"},
     kCheckedText<check_devices, &Config::verbs, &VerbsSetting::devices>},
    {{"UNISONO_VERBS_GID", "auto|rocev2|rocev1|ib|address", "auto",
      "which GID of a port to use, by its type or the address in it"},
     kCheckedText<check_gid, &Config::verbs, &VerbsSetting::gid>},
    {{"UNISONO_VERBS_CONNECT", choices_of<kVerbsConnectNames>(), "exchange",
      "paths between ports: as both ends tell each other, or asked for by rdma_cm"},
     kValue<parse_connect, show_connect, &Config::verbs, &VerbsSetting::connect>},
    {{"UNISONO_VERBS_SERVICE_LEVEL", "0..15", "0", "InfiniBand service level; RoCE: the priority"},
     kInteger<0, 15, &Config::verbs, &VerbsSetting::service_level>},
    {{"UNISONO_VERBS_TRAFFIC_CLASS", "0..255", "0",
      "traffic class of packets; RoCE v2: the DSCP times 4"},
     kInteger<0, 255, &Config::verbs, &VerbsSetting::traffic_class>},
    {{"UNISONO_VERBS_PARTITION", "key", "0xffff",
      "partition key, hexadecimal or decimal; must be in the port's table"},
     kValue<parse_partition, show_partition, &Config::verbs, &VerbsSetting::partition_key>},
    {{"UNISONO_VERBS_QUEUE_PAIRS", "1..16", "1", "queue pairs per port and peer"},
     kInteger<1, 16, &Config::verbs, &VerbsSetting::queue_pairs>},
    {{"UNISONO_VERBS_ACK_TIMEOUT", "1..31", "14",
      "a packet is sent again without an answer after 4.096 us times 2 to this power"},
     kInteger<1, 31, &Config::verbs, &VerbsSetting::ack_timeout>},
    {{"UNISONO_VERBS_RETRIES", "0..6", "6",
      "how often a packet is sent again before its queue pair breaks"},
     kInteger<0, 6, &Config::verbs, &VerbsSetting::retries>},
    {{"UNISONO_VERBS_RELAXED_ORDERING", "on|off", "on",
      "whether devices that offer it may write to memory out of order"},
     kSwitch<&Config::verbs, &VerbsSetting::relaxed_ordering>},
    {{"UNISONO_VERBS_REGISTERED", "size", "4G",
      "bound of the users' memory that a rank keeps registered with its devices"},
     kPositiveBytes<&Config::verbs, &VerbsSetting::registered_bytes_max>},
    {{"UNISONO_CUDA", choices_of<kCudaUses>(), "auto",
      "GPU buffers; auto: where a driver and a device are found, require: an error without them"},
     kChoice<kCudaUses, &Config::cuda, &CudaConfig::use>},
    {{"UNISONO_CUDA_DIRECT", "on|off", "on",
      "network devices that can move GPU memory do so where it lies (GPUDirect RDMA); off: all "
      "that leaves the host passes through its memory"},
     kSwitch<&Config::cuda, &CudaConfig::direct>},
    {{"UNISONO_CUDA_GATES", "on|off", "on",
      "where a call passes through host memory its stream waits, and those that share its hardware "
      "queue, and not the caller; off: the caller waits"},
     kSwitch<&Config::cuda, &CudaConfig::gates>},
    {{"UNISONO_CUDA_LIBRARY", "path", "",
      "the CUDA driver's file, for tests and unusual installations; empty: libcuda.so.1"},
     kText<&Config::cuda, &CudaConfig::library>},
    {{"UNISONO_CUBLAS_LIBRARY", "path", "",
      "cuBLAS' file, for training on a GPU; empty: libcublas.so.13, .12 or .11"},
     kText<&Config::cuda, &CudaConfig::cublas_library>},
    {{"UNISONO_OBJECT_STAGING", "size", "16M",
      "bound of a rank's staging memory in object collectives; the smallest of all ranks holds"},
     kPositiveBytes<&Config::object_staging_bytes>},
    {{"UNISONO_OBJECT_LIMIT", "size", "64G",
      "largest object of one rank in object collectives; the smallest of all ranks holds"},
     kPositiveBytes<&Config::object_limit_bytes>},
    {{"UNISONO_RECORDER", "memory|off|directory", "memory",
      "where each rank records its last operations for `unisono blame`; a directory keeps a file "
      "of each rank after the job"},
     {[](std::string_view text, Config* c) {
        return parse(text, &c->recorder)
                   ? Status()
                   : invalid("memory, off or a directory, one of here as ./name");
      },
      [](const Config& c) { return text_of(c.recorder); }}},
    {{"UNISONO_RECORDER_MEMORY", "fd:inode", "",
      "memory for this rank's record; `unisono run` sets it for the ranks that it starts"},
     kText<&Config::recorder_memory>},
    {{"UNISONO_TRACE", "directory", "",
      "where each rank writes a trace of its last operations for ui.perfetto.dev when it leaves "
      "its job; empty: nowhere"},
     kText<&Config::trace>},
    {{"UNISONO_LOG", choices_of<kLevels>(), "warning", "what is written to stderr"},
     kChoice<kLevels, &Config::log>},
};

// A misspelt variable silently ignored costs people days.
void check_unknown_variables(std::vector<Status>* wrong) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("UNISONO_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const auto known = std::find_if(std::begin(kRows), std::end(kRows),
                                    [&](const Row& row) { return row.variable.name == name; });
    if (known == std::end(kRows)) {
      wrong->push_back({ErrorCode::kInvalidArgument,
                        "unknown variable " + std::string(name) + "; `unisono info` lists all"});
    }
  }
}

}  // namespace

Result<Config> Config::from_environment() {
  std::vector<Status> wrong;
  Config config = from_environment(&wrong);
  if (!wrong.empty()) return wrong.front();
  return config;
}

Config Config::from_environment(std::vector<Status>* wrong) {
  check_unknown_variables(wrong);
  Config config;
  set_default_cache(&config);
  for (const Row& row : kRows) {
    const char* text = read_variable(std::string(row.variable.name));
    if (text == nullptr) continue;
    Config with_it = config;
    if (const Status status = row.value.parse(text, &with_it); !status) {
      wrong->push_back({ErrorCode::kInvalidArgument,
                        std::string(row.variable.name) +
                            (row.variable.secret ? std::string() : "=" + std::string(text)) +
                            ": expected " + status.message()});
      continue;
    }
    config = std::move(with_it);
  }
  return config;
}

Status Config::set_transport(std::string_view name) {
  if (name.empty()) return Status();
  UNISONO_TRY(check_transport(name));
  transport = name;
  return Status();
}

std::string list_transports() { return list_choices(kTransports); }

Status check_transport(std::string_view name) {
  std::string found;
  const Status known = parse_choice(name, kTransports, &found);
  if (known) return Status();
  return Status(ErrorCode::kInvalidArgument, "no transport is called '" +
                                                 std::string(name.substr(0, kShownMax)) +
                                                 "': expected " + known.message());
}

namespace {

struct Variables {
  std::vector<ConfigVariable> all;
  Variables() {
    for (const Row& row : kRows) all.push_back(row.variable);
  }
};
constinit PerProcess<Variables> variables_of_process;

}  // namespace

std::span<const ConfigVariable> config_variables() { return variables_of_process.get().all; }

std::string value_text(const Config& config, std::string_view name) {
  for (const Row& row : kRows) {
    if (row.variable.name == name) return row.value.show(config);
  }
  return "";
}

}  // namespace unisono
