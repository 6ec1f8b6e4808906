// The same as JSON lines. Counts are of one step, as fractions where they differ between steps.
#include <nlohmann/json.hpp>

#include "tools/common/json_text.h"
#include "tools/train/compare_report.h"
#include "tools/train/compare_sums.h"

namespace unisono::train::comparison {
namespace {

using nlohmann::json;

json json_per_step(std::uint64_t count, std::uint64_t steps) {
  if (steps != 0 && count % steps == 0) return count / steps;
  return static_cast<double>(count) / static_cast<double>(steps);
}

json json_of(const Traffic& traffic, std::uint64_t steps) {
  return {{"messages_sent", json_per_step(traffic.messages_sent, steps)},
          {"bytes_sent", json_per_step(traffic.bytes_sent, steps)},
          {"messages_received", json_per_step(traffic.messages_received, steps)},
          {"bytes_received", json_per_step(traffic.bytes_received, steps)}};
}

json calls_of(const TrafficReport& report, std::uint64_t steps) {
  json calls = json::object();
  for (std::size_t c = 0; c < report.calls.size(); ++c) {
    if (report.calls[c] == 0) continue;
    json kind = json_of(report.by_collective[c], steps);
    kind["calls"] = json_per_step(report.calls[c], steps);
    calls[std::string(name_of(static_cast<Collective>(c)))] = std::move(kind);
  }
  return calls;
}

json bytes_to(const TrafficReport& report, std::uint64_t steps) {
  json bytes = json::array();
  for (const Traffic& peer : report.by_peer) bytes.push_back(json_per_step(peer.bytes_sent, steps));
  return bytes;
}

json json_of(const Cost& cost) {
  json devices = json::array();
  for (std::size_t i = 0; i < cost.members.size(); ++i) {
    const Member& member = cost.members[i];
    devices.push_back({{"device", i},
                       {"samples", member.samples},
                       {"peak_memory", member.peak_memory},
                       {"measured", json_of(total(member.traffic), cost.steps)},
                       {"predicted", json_of(total(cost.predicted[i]), 1)},
                       {"collectives", calls_of(member.traffic, cost.steps)},
                       {"bytes_to", bytes_to(member.traffic, cost.steps)}});
  }
  return {{"kind", "strategy"},
          {"strategy", cost.strategy},
          {"steps", cost.steps},
          {"samples_per_s",
           cost.seconds > 0 ? static_cast<double>(cost.samples * cost.steps) / cost.seconds : 0.0},
          {"loss", cost.loss},
          {"threads_started", json_per_step(cost.threads_started, cost.steps)},
          {"bytes", json_per_step(bytes_sent(traffic_of(cost)), cost.steps)},
          {"predicted_bytes", bytes_sent(cost.predicted)},
          {"as_predicted", is_as_predicted(cost)},
          {"devices", std::move(devices)}};
}

json json_of(const Phase& phase, const char* kind) {
  return {{"kind", kind},     {"phase", phase.name},
          {"dp", phase.dp},   {"dp_bytes", phase.dp_bytes},
          {"ddp", phase.ddp}, {"ddp_bytes", phase.ddp_bytes}};
}

json json_of(const Extra& extra) {
  json ranks = json::array();
  for (const TrafficReport& member : extra.members) ranks.push_back(calls_of(member, 1));
  return {{"kind", "apart"},
          {"name", extra.name},
          {"once", extra.once},
          {"payload", extra.payload},
          {"bytes", bytes_sent(extra.members)},
          {"ranks", std::move(ranks)}};
}

json json_of(const OutputUse& use) {
  return {{"kind", "output_memory"},
          {"output_device", use.output},
          {"outputs", use.outputs},
          {"predicted_outputs", use.predicted.outputs},
          {"with_gradient", use.outputs + use.gradient},
          {"predicted_with_gradient", use.predicted.with_gradient}};
}

}  // namespace

std::string json_of(const Comparison& c) {
  std::string lines;
  const auto add = [&lines](const json& line) { lines += tools::json_text(line) + '\n'; };
  add({{"kind", "comparison"},
       {"model", c.model},
       {"data", c.data},
       {"devices", c.devices},
       {"samples", c.samples},
       {"transport", c.transport},
       {"gpus", c.gpus},
       {"copy_seconds_page_locked", c.copies.page_locked},
       {"copy_seconds_pageable", c.copies.pageable},
       {"object_gather_bytes", c.objects.payload},
       {"object_gather_device_memory", c.objects.device_memory},
       {"parameters", c.size.parameters},
       {"buffers", c.size.buffers},
       {"inputs", c.size.inputs * c.samples},
       {"outputs", c.size.outputs * c.samples},
       {"targets", c.size.targets * c.samples}});
  for (const std::string& note : c.notes) add({{"kind", "note"}, {"text", note}});
  for (const Cost& cost : c.costs) add(json_of(cost));
  for (const Phase& phase : c.account.phases) add(json_of(phase, "phase"));
  for (const Phase& row : c.account.besides) add(json_of(row, "besides"));
  for (const Extra& extra : c.extras) add(json_of(extra));
  for (const OutputUse& use : c.outputs) add(json_of(use));
  return lines;
}

}  // namespace unisono::train::comparison
