#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "algorithms/algorithm.h"
#include "algorithms/selection.h"
#include "compute/compute.h"
#include "config/config.h"
#include "tools/common/command_line.h"
#include "tools/common/commands.h"
#include "tools/common/invalid.h"
#include "tools/common/json_text.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/info/known_trials.h"
#include "tools/info/levels.h"
#include "tools/info/machine.h"
#include "topology/host_identity.h"
#include "topology/processors.h"
#include "unisono/communicator.h"

namespace unisono {
namespace {

constexpr std::uint64_t kWhyBytesMax = std::uint64_t{1} << 40;
constexpr const char* kHugePages = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? "unknown" : line;
}

std::string describe_processors() {
  const Result<topology::Processors> processors = topology::read_processors();
  if (!processors) return processors.error().message();
  std::ostringstream out;
  out << tools::counted(processors->cores.size(), "core", "cores") << ", "
      << tools::counted(processors->numa_node_count, "NUMA node", "NUMA nodes") << ", L3 "
      << tools::format_bytes(processors->l3_bytes);
  const double quota = processors->cpu_quota;
  if (quota > 0) out << ", quota of " << quota << (quota == 1 ? " core" : " cores");
  return out.str();
}

std::string describe_rate(const VerbsPort& port) {
  std::ostringstream out;
  out << port.gigabits_per_second << " Gb/s";
  return out.str();
}

void print_rdma_ports(const Config& config) {
  const Result<std::vector<VerbsPort>> ports = info::list_rdma_ports(config);
  if (!ports) return;  // the row of verbs says why
  tools::Table table({{"RDMA port", tools::Align::kLeft},
                      {"state", tools::Align::kLeft},
                      {"link layer", tools::Align::kLeft},
                      {"GID", tools::Align::kLeft},
                      {"type", tools::Align::kLeft},
                      {"MTU"},
                      {"rate"},
                      {"used", tools::Align::kLeft},
                      {"reason", tools::Align::kLeft}});
  for (const VerbsPort& port : *ports) {
    table.add_row({port.device + ":" + std::to_string(port.port), port.state, port.link_layer,
                   port.gid, port.gid_type, std::to_string(port.mtu_bytes) + " B",
                   describe_rate(port), port.usable ? "yes" : "no", port.reason});
  }
  std::printf("%s\n", table.text().c_str());
}

nlohmann::ordered_json json_of_rdma_ports(const Config& config) {
  const Result<std::vector<VerbsPort>> ports = info::list_rdma_ports(config);
  if (!ports)
    return {{"ports", nlohmann::ordered_json::array()}, {"reason", ports.error().message()}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const VerbsPort& port : *ports) {
    list.push_back({{"device", port.device},
                    {"port", port.port},
                    {"state", port.state},
                    {"link_layer", port.link_layer},
                    {"gid", port.gid},
                    {"gid_type", port.gid_type},
                    {"gid_index", port.gid_index},
                    {"mtu_bytes", port.mtu_bytes},
                    {"gigabits_per_second", port.gigabits_per_second},
                    {"usable", port.usable},
                    {"reason", port.reason}});
  }
  return {{"ports", list}, {"reason", ""}};
}

std::string describe_capability(const cuda::DeviceRow& device) {
  return std::to_string(device.capability_major) + "." + std::to_string(device.capability_minor);
}

void print_gpus(const Config& config) {
  const Result<cuda::Survey> survey = info::survey_gpus(config);
  if (!survey) return;  // the row of cuda says why
  std::printf("CUDA driver       %s\n", cuda::version_text(survey->driver_version).c_str());
  tools::Table table({{"GPU"},
                      {"name", tools::Align::kLeft},
                      {"bus", tools::Align::kLeft},
                      {"memory"},
                      {"multiprocessors"},
                      {"capability"}});
  for (const cuda::DeviceRow& device : survey->devices) {
    table.add_row({std::to_string(device.ordinal), device.name, device.bus_id,
                   tools::format_bytes(device.memory_bytes), std::to_string(device.multiprocessors),
                   describe_capability(device)});
  }
  std::printf("%s\n", table.text().c_str());
}

nlohmann::ordered_json json_of_gpus(const Config& config) {
  const Result<cuda::Survey> survey = info::survey_gpus(config);
  if (!survey) {
    return {{"driver", ""},
            {"devices", nlohmann::ordered_json::array()},
            {"reason", survey.error().message()}};
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const cuda::DeviceRow& device : survey->devices) {
    list.push_back({{"ordinal", device.ordinal},
                    {"name", device.name},
                    {"bus_id", device.bus_id},
                    {"memory_bytes", device.memory_bytes},
                    {"multiprocessors", device.multiprocessors},
                    {"capability", describe_capability(device)}});
  }
  return {
      {"driver", cuda::version_text(survey->driver_version)}, {"devices", list}, {"reason", ""}};
}

void print_text(const Config& config) {
  const topology::HostIdentity host = topology::read_host_identity();
  std::printf("unisono %s\n", version());
  std::printf("compiler          %s\n", __VERSION__);
  std::printf("reduction kernels %s\n", compute::instruction_set());
  std::printf("host              %s\n", host.name.c_str());
  std::printf("processors        %s\n", describe_processors().c_str());
  std::printf("huge pages (shm)  %s\n\n", first_line_of(kHugePages).c_str());
  tools::Table transports({{"transport", tools::Align::kLeft},
                           {"usable", tools::Align::kLeft},
                           {"reason", tools::Align::kLeft}});
  for (const info::TransportRow& row : info::probe_transports(config)) {
    transports.add_row({row.name, row.probe.usable ? "yes" : "no", row.probe.reason});
  }
  std::printf("%s\n", transports.text().c_str());
  print_rdma_ports(config);
  print_gpus(config);
  tools::Table variables({{"variable", tools::Align::kLeft},
                          {"value", tools::Align::kLeft},
                          {"default", tools::Align::kLeft},
                          {"accepts", tools::Align::kLeft},
                          {"meaning", tools::Align::kLeft}});
  for (const ConfigVariable& variable : config_variables()) {
    variables.add_row({std::string(variable.name), value_text(config, variable.name),
                       std::string(variable.default_value), std::string(variable.type),
                       std::string(variable.meaning)});
  }
  std::printf("%s", variables.text().c_str());
}

void print_json(const Config& config) {
  nlohmann::ordered_json out;
  out["version"] = version();
  out["compiler"] = __VERSION__;
  out["instruction_set"] = compute::instruction_set();
  out["host"] = topology::read_host_identity().name;
  out["processors"] = describe_processors();
  out["huge_pages"] = first_line_of(kHugePages);
  for (const info::TransportRow& row : info::probe_transports(config)) {
    out["transports"][row.name] = {{"usable", row.probe.usable}, {"reason", row.probe.reason}};
  }
  out["rdma"] = json_of_rdma_ports(config);
  out["cuda"] = json_of_gpus(config);
  for (const ConfigVariable& variable : config_variables()) {
    out["variables"][std::string(variable.name)] = {{"value", value_text(config, variable.name)},
                                                    {"default", variable.default_value},
                                                    {"accepts", variable.type},
                                                    {"meaning", variable.meaning}};
  }
  std::printf("%s\n", tools::json_text(out, 2).c_str());
}

void print_machine(const Config& config, bool json) {
  const std::string text = json ? tools::json_text(info::json_of_machine(config), 2) + "\n"
                                : info::describe_machine(config);
  std::printf("%s", text.c_str());
}

Result<algorithms::Link> link_of(const std::string& transport) {
  using algorithms::Link;
  UNISONO_TRY(check_transport(transport));
  for (const Link link : {Link::kLoopback, Link::kShm, Link::kUnix, Link::kVerbs, Link::kTcp}) {
    if (transport == algorithms::name_of(link)) return link;
  }
  return Link::kShm;  // what is chosen within a host
}

int refuse_info(const Status& status) { return tools::fail("unisono info", status, 2); }

Result<algorithms::SelectionRequest> request_of(const Config& config,
                                                const std::vector<std::string>& why, int ranks,
                                                const std::string& transport,
                                                const algorithms::LinkFacts& links) {
  algorithms::SelectionRequest request;
  if (!parse(why[0], &request.collective)) {
    return tools::invalid("--why: no collective is called '{}'; `unisono plan --list` has them",
                          why[0].substr(0, 64));
  }
  if (algorithms::names_of(request.collective).empty()) {
    return tools::invalid("'{}' goes to one peer; no algorithm is chosen for it", why[0]);
  }
  const bool is_empty = request.collective == Collective::kBarrier;
  UNISONO_ASSIGN(request.bytes,
                 tools::parse_bytes(why.size() > 1 ? why[1]
                                    : is_empty     ? "0"
                                                   : "1M",
                                    "--why " + why[0], {.max = is_empty ? 0 : kWhyBytesMax}));
  UNISONO_ASSIGN(request.link, link_of(transport));
  request.ranks = ranks;
  if (request.link >= algorithms::Link::kVerbs) request.links = links;
  request.native = request.link == algorithms::Link::kShm;
  request.shared_cores = info::would_share_cores(ranks);
  request.order = config.order;
  request.access = config.access;
  return request;
}

// `links`: between hosts.
Status explain(const Config& config, algorithms::SelectionRequest request,
               const algorithms::Hints& hints, const algorithms::LinkFacts& links) {
  UNISONO_ASSIGN(const auto table, algorithms::SelectionTable::load(config.tuning));
  const std::string& hint = hints[static_cast<std::size_t>(request.collective)];
  const bool is_open =
      hint.empty() && algorithms::is_predicted(request.collective) && !links.are_known();
  std::printf("%s\n", table.explain(request, hint).c_str());
  const Result<algorithms::Choice> choice = table.choose(request, hint);
  const bool is_native = choice && choice->algorithm == nullptr;
  const bool is_tried = is_native && choice->path == AccessPath::kAutomatic &&
                        config.access == AccessPath::kAutomatic;
  if (is_tried) {
    std::printf(
        "  %s\n",
        info::explain_trials(config, request.collective, request.bytes, request.ranks).c_str());
  }
  // The exact order has one level.
  if (is_native && request.order != Order::kExact && info::has_levels(request.collective)) {
    std::printf("  %s\n", info::explain_levels(config, request.ranks).c_str());
  }
  if (request.native) {
    request.native = false;
    request.links = links;
    std::printf("\nwithout shared memory, between hosts for example:\n");
    request.link = algorithms::Link::kTcp;
    std::printf("%s\n", table.explain(request, hint).c_str());
  }
  if (is_open && request.link >= algorithms::Link::kVerbs) {
    std::printf("  between hosts what ranks measure when they meet decides: see --gbit\n");
  }
  return {};
}

}  // namespace

int info_main(int argc, char** argv) {
  CLI::App app{
      "What this build and machine offer; every UNISONO_* variable with its value in force.\n"
      "Examples:\n  unisono info\n  unisono info --machine\n"
      "  unisono info --why all_reduce 1M --ranks 8 --transport tcp\n"
      "  unisono info --why broadcast 1M --ranks 8 --transport tcp --gbit 10",
      "unisono info"};
  bool json = false, machine = false;
  std::vector<std::string> why;
  int ranks = 2;
  std::string transport;
  auto* const as_json = app.add_flag("--json", json, "one JSON object instead of tables");
  auto* const of_machine = app.add_flag(
      "--machine", machine,
      "what jobs of yours have learned of this machine: identity, files, ways and times");
  auto* const what =
      app.add_option("--why", why, "COLLECTIVE [BYTES]: what is chosen, and why, as text")
          ->expected(1, 2)
          ->excludes(as_json)
          ->excludes(of_machine);
  app.add_option("-n,--ranks", ranks, "with --why: ranks of the communicator")
      ->needs(what)
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--transport", transport,
                 "with --why: " + list_transports() + " (default: UNISONO_TRANSPORT)")
      ->needs(what);
  double latency_us = 25;
  double gigabits = 0;
  CLI::Option* const gbit =
      app.add_option(
             "--gbit", gigabits,
             "with --why: Gbit/s of the slowest link between hosts, as ranks measure it when "
             "they meet")
          ->needs(what)
          ->check(CLI::Range(0.001, 1e5))
          ->check(tools::refuse_nan);
  app.add_option("--latency-us", latency_us, "with --gbit: its latency, one way")
      ->capture_default_str()
      ->needs(gbit)
      ->check(CLI::Range(0.1, 1e6))
      ->check(tools::refuse_nan);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tools::finish_parsing(app, error);
  }
  // The tables are what helps against a variable that is wrong.
  std::vector<Status> wrong;
  const Config config = Config::from_environment(&wrong);
  const Result<algorithms::Hints> hints = algorithms::parse_hints(config.algorithm);
  if (!hints) wrong.push_back(hints.error());
  for (const Status& each : wrong) refuse_info(each);
  if (!wrong.empty() && !why.empty()) return 2;
  if (!why.empty()) {
    const algorithms::LinkFacts links{latency_us, gigabits * 125};
    if (transport.empty()) transport = config.transport;
    const auto request = request_of(config, why, ranks, transport, links);
    const Status explained = request ? explain(config, *request, *hints, links) : request.error();
    if (!explained) return refuse_info(explained);
  } else if (machine) {
    print_machine(config, json);
  } else {
    json ? print_json(config) : print_text(config);
  }
  return tools::finish_output("unisono info", wrong.empty() ? 0 : 2);
}

}  // namespace unisono
