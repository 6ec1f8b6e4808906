#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/selection.h"
#include "base/result.h"
#include "plan/plan_check.h"
#include "plan/plan_text.h"
#include "plan/plan_timing.h"
#include "tools/common/command_line.h"
#include "tools/common/commands.h"
#include "tools/common/invalid.h"
#include "tools/common/json_text.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/plan/algorithm_list.h"
#include "tools/plan/cost.h"
#include "tools/plan/timeline.h"
#include "tools/plan/topology.h"

namespace unisono::tools {
namespace {

using algorithms::Algorithm;
using plan::NetworkModel;
using plan::Plan;
using plan::PlanRequest;

// What fits in memory and a minute: ranks and chunks of one request.
constexpr int kRanksMax = 65536;
constexpr std::size_t kSymbolsMax = std::size_t{1} << 24;  // about 1 GiB
constexpr int kChunksMax = 4096;
constexpr int kCostRanksMax = 4096;
constexpr std::size_t kBytesMax = std::size_t{1} << 50;

struct Options {
  std::string collective;
  std::string algorithm;
  int ranks = 4;
  int root = 0;
  int chunks = 1;
  std::optional<int> rank;
  std::string bytes_text = "1M";
  std::size_t bytes = 0;  // of that text
  double latency_us = 5;
  double bandwidth_gbps = 100;
  bool in_place = false;
  bool ordered = false;
  bool canonical = false;
  bool exact = false;
  bool json = false;
  bool lists = false;
  bool costs = false;
  std::string topology;
  bool has_topology = false;  // even an empty one
  bool has_chunks = false;
};

// The plans of all ranks and what is known of them.
struct Report {
  const Algorithm* algorithm = nullptr;
  PlanRequest request;
  std::vector<Plan> plans;  // of rank `request.rank` alone when there are too many steps
  bool complete = false;
  Status check;
  std::vector<plan::TimedMessage> rounds;
  int round_count = 0;
  double bytes_sent = 0;  // of the busiest rank
  double seconds = 0;
};

// The network's figures; written so that what is not a number is refused too.
Status check_network(const Options& options) {
  if (!(options.latency_us >= 0 && options.latency_us <= 1e9)) {
    return invalid("--latency-us must be from 0 to 1e9");
  }
  if (!(options.bandwidth_gbps >= 1e-6 && options.bandwidth_gbps <= 1e9)) {
    return invalid("--bandwidth-gbps must be from 1e-6 to 1e9");
  }
  return {};
}

Result<PlanRequest> request_from(const Options& options) {
  UNISONO_TRY(check_network(options));
  PlanRequest request;
  UNISONO_ASSIGN(request.collective, parse_collective(options.collective));
  const auto outside = [](const char* name, int value, int low, int high) {
    return invalid("--{} is {} but must be from {} to {}", name, value, low, high);
  };
  if (options.ranks < 1 || options.ranks > kRanksMax) {
    return outside("ranks", options.ranks, 1, kRanksMax);
  }
  if (options.root < 0 || options.root >= options.ranks) {
    return outside("root", options.root, 0, options.ranks - 1);
  }
  if (options.rank && (*options.rank < 0 || *options.rank >= options.ranks)) {
    return outside("rank", *options.rank, 0, options.ranks - 1);
  }
  if (options.chunks < 1 || options.chunks > kChunksMax) {
    return outside("chunks", options.chunks, 1, kChunksMax);
  }
  if (static_cast<std::size_t>(options.ranks) * static_cast<std::size_t>(options.chunks) >
      kStepsMax) {
    return invalid("--ranks times --chunks must not exceed {}", kStepsMax);
  }
  request.ranks = options.ranks;
  request.root = options.root;
  request.rank = options.rank.value_or(0);
  request.chunks = options.chunks;
  if (options.in_place && facts_of(request.collective).in_place == InPlace::kNever) {
    return invalid("{} has no --in-place: its input and output never share their memory",
                   name_of(request.collective));
  }
  request.in_place = options.in_place;
  request.commutative = !options.ordered;
  if (options.canonical) request.order = Order::kCanonical;
  if (options.exact) request.order = Order::kExact;
  return request;
}

Result<const Algorithm*> algorithm_for(const PlanRequest& request, const std::string& name) {
  std::string reasons;
  for (const Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != request.collective) continue;
    if (!name.empty() && algorithm.name != name) continue;
    const std::string_view reason = algorithm.refuses(request);
    if (reason.empty()) return &algorithm;
    reasons += "; " + std::string(algorithm.name) + " " + std::string(reason);
  }
  if (!reasons.empty()) return invalid("this request is refused{}", reasons);
  if (name == "native") {
    return invalid("native has no plan: ranks work in the memory they share; choose one of: {}",
                   algorithms::names_of(request.collective));
  }
  return invalid("{}", algorithms::no_algorithm_called(name, request.collective));
}

double sent_bytes(const Plan& plan, std::size_t bytes) {
  const auto layout = plan::layout_for(plan, bytes);
  double sent = 0;
  for (const auto& step : plan.steps) {
    if (step.kind != plan::StepKind::kSend) continue;
    sent += static_cast<double>(layout.range(step.source).bytes);
  }
  return sent;
}

// The network of --topology, or the one that the options for a single link describe.
Result<NetworkModel> network_from(const Options& options) {
  if (options.has_topology) {
    return parse_topology(options.topology, options.ranks);
  }
  return NetworkModel{.latency = options.latency_us * 1e-6,
                      .per_byte = 8e-9 / options.bandwidth_gbps};
}

Report make_report(const Options& options, const PlanRequest& request, const Algorithm& algorithm,
                   const NetworkModel& network) {
  Report report{
      .algorithm = &algorithm, .request = request, .plans = {}, .check = {}, .rounds = {}};
  auto [plans, are_complete] = build_plans(algorithm, request);
  report.plans = std::move(plans);
  report.complete = are_complete && plan::symbols_to_check(report.plans) <= kSymbolsMax;
  if (!report.complete) {
    report.plans.assign(1, algorithm.build(request));
    const auto cost = algorithm.cost(request.ranks, request.chunks, options.bytes);
    report.round_count = cost.rounds;
    report.bytes_sent = cost.bytes_sent;
    report.seconds = cost.rounds * network.latency + cost.bytes_sent * network.per_byte;
    return report;
  }
  report.check = plan::check_plans(report.plans);
  if (!report.check.ok()) return report;
  report.rounds = plan::time_plans(report.plans, 0, {.latency = 1}).messages;
  report.round_count = plan::rounds_of(report.plans);
  for (const Plan& plan : report.plans) {
    report.bytes_sent = std::max(report.bytes_sent, sent_bytes(plan, options.bytes));
  }
  report.seconds = plan::time_plans(report.plans, options.bytes, network).end;
  return report;
}

std::string verdict_of(const Report& report) {
  if (!report.complete) {
    return "not checked: all ranks together have more than " + std::to_string(kStepsMax) +
           " steps or " + std::to_string(kSymbolsMax) +
           " chunks in buffers; rounds, bytes and time are the algorithm's formulas";
  }
  return report.check.ok() ? "correct under rendezvous and eager semantics"
                           : "WRONG: " + report.check.message();
}

void print_text(const Options& options, const Report& report) {
  if (report.complete && report.check.ok() && report.request.ranks <= kTimelineRanksMax &&
      !options.rank) {
    std::puts(draw_timeline(report.rounds, report.request.ranks).c_str());
  }
  if (options.rank || report.request.ranks <= 4) {
    for (const Plan& plan : report.plans) {
      if (options.rank && plan.request.rank != *options.rank) continue;
      std::puts(plan::text_of(plan).c_str());
    }
  }
  std::printf("%s %s, %d ranks\n", std::string(name_of(report.request.collective)).c_str(),
              std::string(report.algorithm->name).c_str(), report.request.ranks);
  std::printf("check    %s\n", verdict_of(report).c_str());
  std::printf("rounds   %d\n", report.round_count);
  std::printf("bytes    %.0f sent by the busiest rank, of a payload of %zu\n", report.bytes_sent,
              options.bytes);
  std::printf("time     %.1f us at %g us latency and %g Gb/s (estimate)\n", report.seconds * 1e6,
              options.latency_us, options.bandwidth_gbps);
}

nlohmann::json json_of(const plan::ChunkRange& range) {
  static constexpr const char* kNames[] = {"input", "output", "scratch"};
  return {{"buffer", kNames[static_cast<std::size_t>(range.buffer)]},
          {"first", range.first},
          {"count", range.count}};
}

nlohmann::json json_of(const Plan& plan, std::size_t bytes) {
  const auto layout = plan::layout_for(plan, bytes);
  nlohmann::json steps = nlohmann::json::array();
  for (const auto& step : plan.steps) {
    const bool is_local = step.peer < 0;
    const bool sends = step.kind == plan::StepKind::kSend;
    nlohmann::json entry{{"kind", name_of(step.kind)}};
    if (!is_local) entry["peer"] = step.peer;
    if (!is_local) entry["message_index"] = step.message_index;
    if (!is_local) entry["bytes"] = layout.range(sends ? step.source : step.target).bytes;
    if (!sends) entry["target"] = json_of(step.target);
    if (step.kind != plan::StepKind::kReceive) entry["source"] = json_of(step.source);
    entry["remote_first"] = step.remote_first;
    const auto first = plan.dependencies.begin() + step.dependency_first;
    entry["after"] = std::vector<std::uint32_t>(first, first + step.dependency_count);
    steps.push_back(std::move(entry));
  }
  return {{"rank", plan.request.rank},
          {"input_blocks", plan.input_blocks},
          {"output_blocks", plan.output_blocks},
          {"scratch_chunks", plan.scratch_like.size()},
          {"steps", std::move(steps)}};
}

void print_json(const Options& options, const Report& report) {
  nlohmann::json plans = nlohmann::json::array();
  for (const Plan& plan : report.plans) {
    if (options.rank && plan.request.rank != *options.rank) continue;
    plans.push_back(json_of(plan, options.bytes));
  }
  nlohmann::json correct;  // null: nobody knows
  if (report.complete) correct = report.check.ok();
  nlohmann::json json{{"collective", name_of(report.request.collective)},
                      {"algorithm", report.algorithm->name},
                      {"ranks", report.request.ranks},
                      {"root", report.request.root},
                      {"chunks", report.request.chunks},
                      {"checked", report.complete},
                      {"correct", correct},
                      {"verdict", verdict_of(report)},
                      {"rounds", report.round_count},
                      {"payload_bytes", options.bytes},
                      {"bytes_sent_by_busiest_rank", report.bytes_sent},
                      {"estimated_us", report.seconds * 1e6},
                      {"plans", std::move(plans)}};
  std::puts(json_text(json, 2).c_str());
}

Status print_costs(const Options& options, const PlanRequest& request,
                   const NetworkModel& network) {
  if (request.ranks > kCostRanksMax) {
    return invalid("--ranks is {} but --cost takes {} at most", request.ranks, kCostRanksMax);
  }
  const int chunks_max = options.has_chunks ? request.chunks : kChunksTried;
  const auto costs =
      costs_on_network(request, options.algorithm, options.bytes, network, chunks_max);
  if (costs.empty()) return algorithm_for(request, options.algorithm).status();
  const auto print = options.json ? json_of_costs : text_of_costs;
  std::fputs(print(costs, request, options.bytes, network).c_str(), stdout);
  return {};
}

void declare(CLI::App& app, Options* options) {
  app.add_option("collective", options->collective, names_of_collectives());
  app.add_flag("--list", options->lists,
               "List the algorithms, of one collective or of all, and what each needs");
  app.add_option("--ranks,-n", options->ranks, "Number of ranks")->capture_default_str();
  app.add_option("--algorithm,-a", options->algorithm, "Default: the first that can serve it");
  app.add_option("--root", options->root, "Root rank")->capture_default_str();
  app.add_option("--chunks", options->chunks,
                 "Chunks each block is cut into; with --cost the default is what suits each "
                 "algorithm best of 1, 2, 4, ... 64")
      ->capture_default_str();
  app.add_option("--rank", options->rank, "Print the plan of this rank only");
  app.add_option("--bytes,-b", options->bytes_text,
                 "Payload, counted as nccl-tests do: 1M, 64K, ...")
      ->capture_default_str();
  app.add_option("--latency-us", options->latency_us, "Of one message")->capture_default_str();
  app.add_option("--bandwidth-gbps", options->bandwidth_gbps, "Of a rank's link, each way")
      ->capture_default_str();
  app.add_flag(
      "--cost", options->costs,
      "Predict how long every algorithm takes, or the one that is named, the fastest first");
  app.add_option("--topology", options->topology, kTopologyHelp)
      ->needs("--cost")
      ->excludes("--latency-us")
      ->excludes("--bandwidth-gbps");
  app.add_flag("--in-place", options->in_place, "Input and output share their memory");
  app.add_flag("--ordered", options->ordered, "The operator does not commute");
  app.add_flag("--canonical", options->canonical, "Ask for the canonical order");
  app.add_flag("--exact", options->exact, "Ask for the exact order");
  app.add_flag("--json", options->json, "Print JSON");
}

}  // namespace
}  // namespace unisono::tools

int unisono::plan_main(int argc, char** argv) {
  using namespace tools;
  Options options;
  CLI::App app{"Print, draw, check and cost the plan of a collective, without a network",
               "unisono plan"};
  declare(app, &options);
  try {
    app.parse(argc, argv);
    options.has_topology = app.count("--topology") > 0;
    options.has_chunks = app.count("--chunks") > 0;
  } catch (const CLI::ParseError& error) {
    return finish_parsing(app, error);
  }
  const auto refuse = [](const Status& status) { return fail("unisono plan", status, 2); };
  if (options.lists) {
    const auto list = list_algorithms(options.collective, options.json);
    if (!list) return refuse(list.error());
    std::puts(list->c_str());
    return finish_output("unisono plan", 0);
  }
  if (options.collective.empty()) {
    return refuse(invalid("which collective? one of: {}; --list shows their algorithms",
                          names_of_collectives()));
  }
  const auto bytes = parse_bytes(options.bytes_text, "--bytes", {.max = kBytesMax});
  if (!bytes) return refuse(bytes.error());
  options.bytes = *bytes;
  const auto request = request_from(options);
  if (!request) return refuse(request.error());
  const auto network = network_from(options);
  if (!network) return refuse(network.error());
  if (options.costs) {
    const Status printed = print_costs(options, *request, *network);
    if (!printed) return refuse(printed);
    return finish_output("unisono plan", 0);
  }
  const auto algorithm = algorithm_for(*request, options.algorithm);
  if (!algorithm) return refuse(algorithm.error());
  const Report report = make_report(options, *request, **algorithm, *network);
  options.json ? print_json(options, report) : print_text(options, report);
  return finish_output("unisono plan", report.check.ok() ? 0 : 1);
}
