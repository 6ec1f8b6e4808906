// Texts from users and from other ranks: settings, the selection table, addresses.
#include <arpa/inet.h>
#include <sys/un.h>

#include <cstdlib>

#include "algorithms/selection.h"
#include "base/fnv.h"
#include "comm/host_load.h"
#include "config/config.h"
#include "config/launcher.h"
#include "config/value_text.h"
#include "machine/facts_text.h"
#include "rendezvous/messages/peer_information.h"
#include "tests/fuzz/target.h"
#include "transports/tcp/peer_address.h"
#include "transports/verbs/world_address.h"

namespace unisono::fuzz {
namespace {

std::vector<Bytes> all_of(std::initializer_list<std::string_view> texts, const Bytes& front = {}) {
  std::vector<Bytes> inputs;
  for (const std::string_view text : texts) inputs.push_back(front + to_bytes(text));
  return inputs;
}

// ---- Settings -----------------------------------------------------------------------------------

void fuzz_values(std::span<const std::byte> input) {
  // The environment has no zero bytes in it.
  std::string_view text = Input(input).text();
  text = text.substr(0, text.find('\0'));
  std::size_t bytes = 0;
  if (config::parse_bytes(text, &bytes).ok()) {
    require(bytes <= std::size_t{1} << 50, "a size above its limit");
    std::size_t again = 0;
    require(config::parse_bytes(std::to_string(bytes), &again).ok() && again == bytes,
            "another size");
    require(config::parse_positive_bytes(text, &again).ok() == (bytes > 0), "no bytes at all");
  }
  std::chrono::milliseconds time{};
  if (config::parse_duration(text, &time).ok()) {
    require(time.count() > 0 && time <= std::chrono::hours(365 * 24), "a time beyond its limits");
    std::chrono::milliseconds again{};
    require(config::parse_duration(config::show_duration(time), &again).ok() && again == time,
            "another time");
  }
  int key = 0;
  if (config::parse_partition(text, &key).ok()) {
    require(key > 0 && key <= 0xffff && key != 0x8000, "no partition key");
    int again = 0;
    require(config::parse_partition(config::show_partition(key), &again).ok() && again == key,
            "another partition");
  }
  static_cast<void>(config::check_devices(text));
  static_cast<void>(config::check_gid(text));
}

std::vector<Bytes> values_corpus() {
  return all_of({"64M", "0", "1048576G", "1048577G", "10min", "1500ms", "90", "525600min", "0xffff",
                 "32769", "0x8000", "mlx5_0,mlx5_1:2", "^mlx5_2:255", "rocev2", "fd00::1",
                 "::ffff:10.0.0.1", "10.0.0.1", ""});
}

/// One variable of the environment, as long as this lives.
class Variable {
 public:
  Variable(std::string name, const std::string& text) : name_(std::move(name)) {
    ::setenv(name_.c_str(), text.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

// What launchers say, with an example.
constexpr const char* kLauncher[][2]{{"RANK", "65535"},
                                     {"WORLD_SIZE", "65536"},
                                     {"LOCAL_RANK", "7"},
                                     {"LOCAL_WORLD_SIZE", "8"},
                                     {"MASTER_PORT", "65535"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                     {"SLURM_STEP_NODELIST", "rack[2-3]n[07,9],login"},
                                     {"SLURM_NODEID", "1"}};

void fuzz_environment(std::span<const std::byte> input) {
  Input in(input);
  const std::size_t which = in.byte();
  std::string text(in.text());
  text = text.substr(0, text.find('\0'));
  if (which >= 256 - std::size(kLauncher)) {
    const Variable task("SLURM_PROCID", "3"), tasks("SLURM_STEP_NUM_TASKS", "4"),
        step("SLURM_STEP_ID", "1"), nodes("SLURM_STEP_NUM_NODES", "2"), node("SLURM_NODEID", "1");
    const Variable variable(kLauncher[255 - which][0], text);
    const auto launcher = LauncherVariables::from_environment();
    if (!launcher || text.empty()) return;
    require(launcher->rank < 65536 && launcher->world_size <= 65536 &&
                launcher->master_port <= 65535 && launcher->local_world_size <= 65536,
            "a number above its limit");
    return;
  }
  const ConfigVariable row = config_variables()[which % config_variables().size()];
  std::string shown;
  {
    const Variable variable(std::string(row.name), text);
    const auto config = Config::from_environment();
    if (!config) {
      require(config.error().message().find(row.name) != std::string::npos, "which variable?");
      require(!row.secret || config.error().message().find("=" + text) == std::string::npos,
              "a secret in a message");
      return;
    }
    shown = value_text(*config, row.name);
  }
  if (row.secret) return;
  const Variable variable(std::string(row.name), shown);
  const auto again = Config::from_environment();
  require(again && value_text(*again, row.name) == shown, "another value");
}

std::vector<Bytes> environment_corpus() {
  std::vector<Bytes> inputs;
  for (std::size_t i = 0; i < config_variables().size(); ++i) {
    inputs.push_back(bytes_of(static_cast<std::uint8_t>(i)) +
                     to_bytes(config_variables()[i].default_value));
  }
  for (std::size_t i = 0; i < std::size(kLauncher); ++i) {
    inputs.push_back(bytes_of(static_cast<std::uint8_t>(255 - i)) + to_bytes(kLauncher[i][1]));
  }
  return inputs;
}

// ---- Facts about the machine --------------------------------------------------------------------

// As it is, and with a sum that is right, without which hardly an input gets further.
void fuzz_facts(std::span<const std::byte> input) {
  using namespace machine;
  const std::string lines(Input(input).text());
  const std::string digits = "0123456789abcdef";
  std::string sum;
  for (int shift = 60; shift >= 0; shift -= 4) sum += digits[fnv1a_64(lines) >> shift & 15];
  for (const std::string& text : {lines, lines + "sum " + sum + "\n"}) {
    const auto facts = parse_facts(text);
    if (!facts) continue;
    require(text.size() <= kTextBytesMax, "a text above its limit");
    require(text_of(*facts) == text, "other facts");
  }
}

std::vector<Bytes> facts_corpus() {
  machine::Facts facts{.identity = {"A processor", "6.18", 2, 1.5, 2, 2, "a-host", {1, 1}}};
  facts.trials.calls[0].fill({4'000'000'000, 1, 20, 300});
  facts.trials.messages.fill({1, 2});
  facts.trials.pieces.fill({3, 4});
  const std::string whole = text_of(facts);
  const std::string few = text_of(machine::Facts{.identity = facts.identity});
  return all_of({whole, whole.substr(0, whole.rfind("sum ")), few.substr(0, few.rfind("sum "))});
}

// ---- The selection table ------------------------------------------------------------------------

void fuzz_selection(std::span<const std::byte> input) {
  using namespace algorithms;
  Input in(input);
  SelectionRequest request;
  request.collective = static_cast<Collective>(in.byte() % static_cast<int>(Collective::kSend));
  request.ranks = 1 + in.byte();
  request.bytes = in.number<std::uint32_t>();
  request.link = static_cast<Link>(in.byte() % 5);
  const int flags = in.byte();
  request.native = flags % 2 == 1;
  request.shared_cores = flags / 2 % 2 == 1;
  request.order = flags / 4 % 2 == 1 ? Order::kCanonical : Order::kAny;
  const auto table = SelectionTable::from_text(in.text(), "fuzz");
  if (!table) {
    require(table.error().code() == ErrorCode::kInvalidArgument, "an undocumented error");
    return;
  }
  std::string own;
  std::size_t rows = 0;
  for (; rows < table->rows().size() && table->rows()[rows].line > 0; ++rows) {
    const SelectionRow& row = table->rows()[rows];
    require(row.ranks_min >= 1 && row.ranks_min <= row.ranks_max && row.ranks_max <= kAnyRanks,
            "a row for no ranks");
    own += to_text(row) + "\n";
  }
  require(rows <= 4096, "more rows than allowed");
  const auto again = SelectionTable::from_text(own);
  require(again && again->rows().size() == table->rows().size(), "another table");
  for (std::size_t i = 0; i < rows; ++i) {
    require(to_text(again->rows()[i]) == to_text(table->rows()[i]), "another row");
  }
  const auto choice = table->choose(request, "");
  if (choice) {
    require(choice->chunks >= 1, "no chunks");
    require(choice->algorithm != nullptr || request.native, "native where it cannot be");
  }
  static_cast<void>(table->explain(request, ""));
  static_cast<void>(table->native_ranges(request));
}

std::vector<Bytes> selection_corpus() {
  Bytes request(8, std::byte{0});
  request[0] = std::byte{1};
  request[1] = std::byte{3};
  request[7] = std::byte{1};
  std::vector<Bytes> inputs =
      all_of({"", "all_reduce any 1 any any any native auto 0\n",
              "all_reduce tcp 2 8 own 65536 ring - 4096 # measured\nbroadcast any 1 any shared any "
              "binomial - 0\n",
              "all_reduce any 1 any any any ring - 1\n",
              "all_reduce any 1 any any any ring - 18446744073709551615\n"},
             request);
  const auto defaults = algorithms::SelectionTable::defaults();
  inputs.push_back(request + to_bytes(defaults.to_text().substr(0, 2000)));
  return inputs;
}

// ---- Addresses ----------------------------------------------------------------------------------

void fuzz_stream_address(std::span<const std::byte> input) {
  using namespace tcp;
  const std::string_view text = Input(input).text();
  const auto targets = parse_address(text);
  if (!targets) return;
  require(!targets->empty() && targets->size() <= kTargetsMax, "too few targets or too many");
  require(text.size() <= kAddressBytesMax, "a text above its limit");
  require(text.find('\0') == std::string_view::npos, "an address with something behind it");
  std::vector<std::string> addresses;
  for (const tcp::Target& target : *targets) {
    require(target.bytes > sizeof(sa_family_t) && target.bytes <= sizeof target.address,
            "an address of another size");
    require(same_host(target, target) && !to_text(target).empty(), "an address that is none");
    if (target.address.ss_family == AF_UNIX) {
      require(target.bytes <= sizeof(sockaddr_un), "a name above its limit");
      return;
    }
    char name[INET6_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const std::byte*>(&target.address);
    const int family = target.address.ss_family;
    const std::size_t at =
        family == AF_INET ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
    require(::inet_ntop(family, address + at, name, sizeof name) != nullptr, "no address");
    addresses.emplace_back(name);
  }
  const auto again = parse_address(tcp_address_text(1, addresses));
  require(again && again->size() == targets->size(), "other targets");
}

std::vector<Bytes> stream_address_corpus() {
  using namespace std::string_view_literals;
  std::string many = "tcp:1:1.1.1.1", longest = "tcp:1:1.1.1.1";
  for (int i = 0; i < 16; ++i) many += ",1.1.1.1";
  for (int i = 0; i < 15; ++i) longest += ",1234:1234:1234:1234:1234:1234:1234:1234";
  const std::string name = "unix:" + std::string(sizeof(sockaddr_un::sun_path), 'x');
  return all_of({many, longest, name, "tcp:4411:10.0.0.5,fd00::2,127.0.0.1",
                 "tcp:65535:::ffff:1.2.3.4", "tcp:1:", "unix:unisono-0123456789abcdef",
                 "unix:", "tcp:0:10.0.0.1",
                 // Once taken for an address.
                 "tcp:1:10.0.0.1\0junk"sv});
}

void fuzz_world_address(std::span<const std::byte> input) {
  using namespace verbs;
  const std::string_view text = Input(input).text();
  const auto address = parse_world_address(text);
  if (!address) return;
  require(address->networks.size() <= text.size(), "networks out of nothing");
  const auto again = parse_world_address(world_address_text(*address));
  require(again && again->side == address->side && again->networks == address->networks,
          "another address");
  require(have_common(address->networks, again->networks) ==
              have_common(again->networks, address->networks),
          "the two sides do not agree");
}

std::vector<Bytes> world_address_corpus() {
  return all_of({"tcp:4411:10.0.0.5", "verbs1;rocev2-ipv4:7fff,ib:1-limited;tcp:4411:10.0.0.5",
                 "verbs1;;", "verbs2;a;b",
                 // Two ranks would have had the network of no name in common.
                 "verbs1;,,;x"});
}

// Two members of one host: the first has published any text, the second that it may use one
// processor.
void fuzz_host_load(std::span<const std::byte> input) {
  std::vector<Member> job(2);
  job[0].addresses = Input(input).text();
  job[1].addresses = "cpus 1\n";
  job[0].host = job[1].host = "host";
  job[0].pid = 1;
  job[1].pid = 2;
  for (const std::string_view kind : {"cpus", "quota", "shm", "cuda"}) {
    const std::string found = find_address(job[0].addresses, kind);
    require(found.find('\n') == std::string::npos, "more than a line");
    require(found.empty() ||
                job[0].addresses.find(std::string(kind) + " " + found) != std::string::npos,
            "an address that is not there");
  }
  const std::vector<HostLoad> loads = host_loads(job);
  require(loads.size() == 2 && loads[0].cpus == loads[1].cpus, "ranks of a host do not agree");
  require(loads[0].ranks == 2 && loads[0].processes == 2 && loads[0].ranks_of_process == 1,
          "another number of ranks");
  require(loads[0].cpus >= 1 &&
              static_cast<std::size_t>(loads[0].cpus) <= 1 + 4 * job[0].addresses.size(),
          "processors out of nothing");
}

std::vector<Bytes> host_load_corpus() {
  return all_of({"cpus ff\nquota 1.500\nshm unisono-1234\ncuda 77:0\n", "cpus \nquota 0.000\n",
                 "cpus 3\nquota 1e300\n", "cpus 3\nquota -1\n", "cpus 3\nquota nan\n",
                 "cpus 3\ncpus ffff\n", "cpus", "cpus \n\n", ""});
}

}  // namespace

void add_texts(Targets* targets) {
  targets->push_back({"values", fuzz_values, values_corpus, 10'000});
  targets->push_back({"environment", fuzz_environment, environment_corpus, 5000});
  targets->push_back({"facts", fuzz_facts, facts_corpus, 5000});
  targets->push_back({"selection_table", fuzz_selection, selection_corpus, 2000});
  targets->push_back({"stream_address", fuzz_stream_address, stream_address_corpus, 10'000});
  targets->push_back({"host_load", fuzz_host_load, host_load_corpus, 10'000});
  targets->push_back({"world_address", fuzz_world_address, world_address_corpus, 10'000});
}

}  // namespace unisono::fuzz
