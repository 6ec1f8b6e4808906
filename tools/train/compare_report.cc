// The tables. All counts are of one step; an average that is no whole number shows its decimals.
#include "tools/train/compare_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/train/compare_sums.h"

namespace unisono::train::comparison {
namespace {

using tools::Align;
using tools::Table;

/// A count of all steps as one step's.
std::string text_per_step(std::uint64_t count, std::uint64_t steps) {
  if (steps != 0 && count % steps == 0) return grouped(count / steps);
  return fmt::format("{:.2f}", static_cast<double>(count) / static_cast<double>(steps));
}

std::string memory_text(std::size_t bytes) {
  return tools::format_bytes_rounded(static_cast<double>(bytes));
}

double samples_per_second(const Cost& cost) {
  return static_cast<double>(cost.samples * cost.steps) / std::max(cost.seconds, 1e-9);
}

std::size_t peak_of_others(const Cost& cost) {
  std::size_t peak = 0;
  for (std::size_t i = 1; i < cost.members.size(); ++i) {
    peak = std::max(peak, cost.members[i].peak_memory);
  }
  return peak;
}

const char* verdict(const Cost& cost) {
  if (!is_as_predicted(cost)) return "DIFFERS";
  return cost.is_on_gpus ? "calls equal" : "equal";
}

std::uint64_t messages_sent(const Cost& cost) {
  std::uint64_t messages = 0;
  for (const Member& member : cost.members) messages += total(member.traffic).messages_sent;
  return messages;
}

const Cost* find_cost(const Comparison& comparison, std::string_view strategy) {
  const auto found = std::ranges::find(comparison.costs, strategy, &Cost::strategy);
  return found == comparison.costs.end() ? nullptr : &*found;
}

std::uint64_t even_elements(const Comparison& c, bool has_parallel_loss) {
  const auto devices = static_cast<std::uint64_t>(c.devices);
  return has_parallel_loss ? even_dp_criterion_elements(c.size, c.samples, devices)
                           : even_dp_elements(c.size, c.samples, devices);
}

}  // namespace

std::string grouped(std::uint64_t number) {
  std::string text = fmt::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string calls_text(const TrafficReport& report, std::uint64_t steps) {
  std::string text;
  for (std::size_t c = 0; c < report.calls.size(); ++c) {
    if (report.calls[c] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(static_cast<Collective>(c)),
                        text_per_step(report.calls[c], steps));
  }
  return text.empty() ? "none" : text;
}

std::string deviations(const Comparison& comparison) {
  std::string names;
  for (const Cost& cost : comparison.costs) {
    if (!is_as_predicted(cost)) names += (names.empty() ? "" : ", ") + cost.strategy;
  }
  return names;
}

std::string strategies_text(const Comparison& comparison) {
  Table table({{"strategy", Align::kLeft},
               {"samples/s"},
               {"loss"},
               {"threads"},
               {"messages"},
               {"bytes"},
               {"predicted"},
               {"", Align::kLeft},
               {"peak, first"},
               {"peak, others"}});
  for (const Cost& cost : comparison.costs) {
    const std::size_t others = peak_of_others(cost);
    table.add_row({cost.strategy, fmt::format("{:.0f}", samples_per_second(cost)),
                   fmt::format("{:.4f}", cost.loss),
                   text_per_step(cost.threads_started, cost.steps),
                   text_per_step(messages_sent(cost), cost.steps),
                   text_per_step(bytes_sent(traffic_of(cost)), cost.steps),
                   grouped(bytes_sent(cost.predicted)), verdict(cost),
                   memory_text(cost.members.front().peak_memory),
                   cost.members.size() > 1 ? memory_text(others) : ""});
  }
  return "Strategies, per step over all devices (threads: started in a step; peak: bytes of "
         "tensors,\n"
         "buckets and scratch)\n" +
         table.text();
}

std::string members_text(const Comparison& comparison) {
  Table table({{"strategy", Align::kLeft},
               {"device"},
               {"samples"},
               {"msgs out"},
               {"msgs in"},
               {"bytes out"},
               {"predicted"},
               {"bytes in"},
               {"predicted"},
               {"peak"},
               {"calls", Align::kLeft}});
  for (const Cost& cost : comparison.costs) {
    for (std::size_t i = 0; i < cost.members.size(); ++i) {
      const Member& member = cost.members[i];
      const Traffic moved = total(member.traffic), predicted = total(cost.predicted[i]);
      table.add_row({i == 0 ? cost.strategy : "", fmt::to_string(i), fmt::to_string(member.samples),
                     text_per_step(moved.messages_sent, cost.steps),
                     text_per_step(moved.messages_received, cost.steps),
                     text_per_step(moved.bytes_sent, cost.steps), grouped(predicted.bytes_sent),
                     text_per_step(moved.bytes_received, cost.steps),
                     grouped(predicted.bytes_received), memory_text(member.peak_memory),
                     calls_text(member.traffic, cost.steps)});
    }
  }
  return "Devices (of one process) and ranks, per step\n" + table.text();
}

std::string formulas_text(const Comparison& c) {
  const auto n = static_cast<std::uint64_t>(c.devices);
  std::string text = fmt::format(
      "Theory, in elements of 4 bytes per step: P = {} parameters, U = {} buffers, X = {} inputs, "
      "O = {} outputs, T = {} targets, n = N = {}\n",
      grouped(c.size.parameters), grouped(c.size.buffers), grouped(c.size.inputs * c.samples),
      grouped(c.size.outputs * c.samples), grouped(c.size.targets * c.samples), n);
  const bool is_even = c.samples % n == 0;
  const auto dp = [&](bool has_parallel_loss) {
    return is_even ? grouped(even_elements(c, has_parallel_loss))
                   : "chunks are not even, see above";
  };
  text += fmt::format(
      "  dp            X(n-1)/n + (n-1)(P+U) + O(n-1)/n + O(n-1)/n + (n-1)P = {}\n"
      "  dp-criterion  X(n-1)/n + (n-1)(P+U) + T(n-1)/n + 2(n-1) + (n-1)P = {}\n"
      "  ddp           2(N-1) messages per rank and bucket, 1/N of it each: 2(N-1)P/N = {} per "
      "rank{}\n"
      "  zero1         (N-1) slices reduce-scattered, (N-1) gathered, ceil(P/N) each: {} per "
      "rank\n",
      dp(false), dp(true), grouped(even_ddp_elements(c.size.parameters, n)),
      c.size.parameters % n == 0 ? "" : " on average, the blocks differ by one element",
      grouped(2 * (n - 1) * ((c.size.parameters + n - 1) / n)));
  return text;
}

std::string phases_text(const Comparison& comparison) {
  Table table(
      {{"phase", Align::kLeft}, {"DP", Align::kLeft}, {"bytes"}, {"DDP", Align::kLeft}, {"bytes"}});
  const StepAccount& account = comparison.account;
  for (const std::vector<Phase>* rows : {&account.phases, &account.besides}) {
    for (const Phase& row : *rows) {
      table.add_row({row.name, row.dp, grouped(row.dp_bytes), row.ddp, grouped(row.ddp_bytes)});
    }
    if (rows == &account.phases) table.add_row({"besides:"});
  }
  return "DP against DDP: bytes that one step moves between devices\n" + table.text() +
         advice_text(comparison);
}

std::string advice_text(const Comparison& comparison) {
  const Cost* const dp = find_cost(comparison, kDpName);
  const Cost* const ddp = find_cost(comparison, kDdpName);
  if (dp == nullptr || ddp == nullptr) return "";
  return fmt::format(
      "Prefer DDP: its ranks share the work evenly and exchange nothing but gradients, during the "
      "backward\npass, while in DP everything goes through the first device, and the others wait "
      "while it computes the\nloss and updates (here: DDP {:.0f} samples/s, DP {:.0f}).\n",
      samples_per_second(*ddp), samples_per_second(*dp));
}

std::string extras_text(const Comparison& comparison) {
  Table table({{"ddp besides gradients", Align::kLeft},
               {"when", Align::kLeft},
               {"payload"},
               {"bytes out, all ranks"},
               {"calls of a rank", Align::kLeft}});
  for (const Extra& extra : comparison.extras) {
    table.add_row({extra.name, extra.once ? "once" : "each step", grouped(extra.payload),
                   grouped(bytes_sent(extra.members)), calls_text(extra.members.front(), 1)});
  }
  return "Counted apart, each from a run with it\n" + table.text();
}

std::string output_devices_text(const Comparison& comparison) {
  const Cost* const first = find_cost(comparison, kDpName);
  const Cost* const second = find_cost(comparison, kDpOutput1Name);
  if (first == nullptr || second == nullptr) return "";
  Table table({{"device"},
               {"out, on 0"},
               {"in, on 0"},
               {"peak, on 0"},
               {"out, on 1"},
               {"in, on 1"},
               {"peak, on 1"}});
  for (std::size_t i = 0; i < first->members.size(); ++i) {
    std::vector<std::string> cells{fmt::to_string(i)};
    for (const Cost* cost : {first, second}) {
      const Traffic moved = total(cost->members[i].traffic);
      cells.push_back(text_per_step(moved.bytes_sent, cost->steps));
      cells.push_back(text_per_step(moved.bytes_received, cost->steps));
      cells.push_back(grouped(cost->members[i].peak_memory));
    }
    table.add_row(std::move(cells));
  }
  return "dp with its outputs on device 0 and on device 1, bytes\n" + table.text();
}

std::string outputs_text(const Comparison& comparison) {
  Table table({{"dp", Align::kLeft}, {"outputs"}, {"predicted"}, {"with gradient"}, {"predicted"}});
  for (const OutputUse& use : comparison.outputs) {
    table.add_row({fmt::format("output device {}", use.output), grouped(use.outputs),
                   grouped(use.predicted.outputs), grouped(use.outputs + use.gradient),
                   grouped(use.predicted.with_gradient)});
  }
  return "Bytes of gathered outputs on their device\n" + table.text() + worked_text();
}

std::string matrix_text(const Cost& cost) {
  std::vector<tools::Column> columns{{"from \\ to", Align::kLeft}};
  for (std::size_t i = 0; i < cost.members.size(); ++i) columns.push_back({fmt::to_string(i)});
  Table table(std::move(columns));
  for (std::size_t i = 0; i < cost.members.size(); ++i) {
    std::vector<std::string> cells{fmt::to_string(i)};
    const std::vector<Traffic>& peers = cost.members[i].traffic.by_peer;
    for (std::size_t peer = 0; peer < cost.members.size(); ++peer) {
      const std::uint64_t sent = peer < peers.size() ? peers[peer].bytes_sent : 0;
      cells.push_back(peer == i ? "-" : text_per_step(sent, cost.steps));
    }
    table.add_row(std::move(cells));
  }
  return fmt::format("Bytes per step from device to device, {}\n", cost.strategy) + table.text();
}

std::string worked_text() {
  constexpr std::uint64_t kWords = 40000, kTokens = 250, kSequences = 32;
  const OutputMemory memory = output_memory(kWords * kTokens, kSequences);
  return fmt::format(
      "textbook case: {} words x {} tokens x {} sequences x 4 B = {:.2f} GB, {:.2f} GB with its "
      "gradient\n",
      grouped(kWords), kTokens, kSequences, static_cast<double>(memory.outputs) / 1e9,
      static_cast<double>(memory.with_gradient) / 1e9);
}

std::string gpus_text(const Comparison& c) {
  if (c.gpus.empty()) return "";
  const std::size_t bytes = c.size.inputs * c.samples * sizeof(float);
  return fmt::format("On GPUs {}, repeated where there are more devices; batches are pageable\n",
                     fmt::join(c.gpus, ", ")) +
         copies_text(c.copies, bytes, false, "") +
         fmt::format("Outputs gathered as objects: {} bytes, device memory that it took: {}\n\n",
                     grouped(c.objects.payload), grouped(c.objects.device_memory));
}

std::string text_of(const Comparison& c) {
  std::string text =
      fmt::format("{} on {}, {} samples per step{}, {} devices, ranks over {}\n{}\n", c.model,
                  c.data, c.samples, c.samples_note, c.devices, c.transport, c.workload_note);
  text += gpus_text(c);
  for (const auto part : {strategies_text, members_text, formulas_text, phases_text, extras_text,
                          output_devices_text, outputs_text}) {
    text += part(c) + '\n';
  }
  for (const Cost& cost : c.costs) {
    if (cost.members.size() > 1) text += matrix_text(cost) + '\n';
  }
  const std::string wrong = deviations(c);
  const char* const right =
      c.gpus.empty() ? "Every strategy moved what the theory says, to the byte.\n"
                     : "Every strategy made the calls that the theory says; what kernels read from "
                       "peers' memory is no message.\n";
  text += wrong.empty() ? right : "Moved otherwise than the theory says: " + wrong + "\n";
  return text;
}

}  // namespace unisono::train::comparison
