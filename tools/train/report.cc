#include "tools/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

#include "tools/common/json_text.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"

namespace unisono::train {
namespace {

constexpr std::size_t kCurvePointsMax = 400;
constexpr const char* kLogName = "log.jsonl";

std::string log_path(const Options& options) { return options.output + "/" + kLogName; }

Progress::Style style_of(const Options& options, int rank) {
  if (rank != 0 || options.quiet || options.json) return Progress::Style::kSilent;
  return options.screen > 0 ? Progress::Style::kLive : Progress::Style::kPlain;
}

bool counts_devices(const Options& options) {
  return is_in_process(options.strategy) && options.strategy != StrategyKind::kSingle;
}

std::string bytes(double value) { return tools::format_bytes_rounded(value); }
// The double that prints as the float does: 0.0007 and not 0.000699999975040555.
double as_written(float value) { return std::stod(fmt::format("{}", value)); }
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

nlohmann::ordered_json by_kind(const std::array<std::uint64_t, kCollectiveCount>& counts,
                               std::size_t steps) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0) continue;
    object[std::string(name_of(static_cast<Collective>(kind)))] =
        rounded(static_cast<double>(counts[kind]) / static_cast<double>(steps));
  }
  return object;
}

// A disk that was full, or a kill, may have cut the last line short.
bool ends_within_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

}  // namespace

Report::Report(const Options& options, int rank)
    : options_(options), is_silent_(rank != 0), progress_(style_of(options, rank), options.screen) {
  if (is_silent_) return;
  // A resumed training goes on in its log.
  const bool is_cut_short = options.goes_on && ends_within_line(log_path(options));
  log_.open(log_path(options), options.goes_on ? std::ios::app : std::ios::trunc);
  if (!log_) {
    throw std::runtime_error(fmt::format("cannot write {}: {}; choose another folder by --output",
                                         log_path(options), std::strerror(errno)));
  }
  if (is_cut_short) log_ << '\n';
  if (!options.goes_on) remove_charts(options.output);
}

void Report::start(const Model& model, const std::string& data, const std::string& communicator,
                   float scaled_rate) {
  const std::size_t devices = std::max<std::size_t>(options_.devices.size(), 1);
  const std::size_t ranks = static_cast<std::size_t>(options_.ranks) * devices;
  const char* unit = counts_devices(options_) ? "device" : "rank";
  charts_.title =
      fmt::format("{}, {}{}, {} {}{}", model.describe(), name_of(options_.strategy),
                  options_.bitwise ? " bitwise" : "", ranks, unit, ranks == 1 ? "" : "s");
  const std::size_t parameters = model.parameters().values().size();
  print(fmt::format("{}: {} parameters", charts_.title, grouped(static_cast<double>(parameters))));
  print(fmt::format("{}; batch {} over all {}s{}, {}", data, options_.batch, unit,
                    cut_text(options_), communicator));
  if (options_.scaling != RateScaling::kNone) {
    print(fmt::format("learning rate {}: --lr {} for a batch of {}, scaled ({}){}", scaled_rate,
                      options_.rate, kBaseBatch, name_of(options_.scaling),
                      options_.warm_up > 0
                          ? fmt::format(", reached after {} steps of warm-up", options_.warm_up)
                          : ""));
  }
  log({{"event", "start"},
       {"model", model.describe()},
       {"strategy", name_of(options_.strategy)},
       {"ranks", ranks},
       {"data", data},
       {"parameters", parameters},
       {"batch", options_.batch},
       {"accumulate", options_.accumulate},
       {"optimizer", name_of(options_.optimizer)},
       {"learning_rate", as_written(options_.rate)},
       {"scaled_learning_rate", as_written(scaled_rate)},
       {"scale_lr", name_of(options_.scaling)},
       {"warm_up", options_.warm_up},
       {"epochs", options_.epochs},
       {"seed", options_.seed}});
}

void Report::seats(const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    if (counts_devices(options_)) {
      print(fmt::format("device {} of {}: cuda:{}", seat.rank, seat.world, seat.gpu));
      log({{"event", "device"}, {"device", seat.rank}, {"gpu", seat.gpu}});
      continue;
    }
    print(fmt::format("rank {}, world {}: cuda:{} (local rank {})", seat.rank, seat.world, seat.gpu,
                      seat.local_rank));
    log({{"event", "device"},
         {"rank", seat.rank},
         {"world", seat.world},
         {"local_rank", seat.local_rank},
         {"gpu", seat.gpu}});
  }
}

void Report::batches(const BatchMemory& memory, const CopyTimes& times, std::size_t bytes_of_one) {
  const bool locked = memory.is_page_locked;
  std::string text = copies_text(times, bytes_of_one, locked, memory.reason);
  text.pop_back();
  print(text);
  log({{"event", "batches"},
       {"page_locked", locked},
       {"reason", memory.reason},
       {"bytes", bytes_of_one},
       {"copy_seconds_page_locked", times.page_locked},
       {"copy_seconds_pageable", times.pageable}});
}

void Report::loaded(const std::vector<LoadCost>& costs) {
  for (const LoadCost& cost : costs) {
    print(fmt::format("load {}, rank {}: {} samples read, {} held, {} at the peak, {}",
                      name_of(options_.load), cost.rank, grouped(static_cast<double>(cost.read)),
                      bytes(static_cast<double>(cost.held_bytes)),
                      bytes(static_cast<double>(cost.peak_bytes)),
                      tools::format_duration(cost.seconds)));
    log({{"event", "load"},
         {"mode", name_of(options_.load)},
         {"rank", cost.rank},
         {"read", cost.read},
         {"held_bytes", cost.held_bytes},
         {"peak_bytes", cost.peak_bytes},
         {"received_bytes", cost.received_bytes},
         {"seconds", rounded(cost.seconds)}});
  }
}

// What the log holds of the epochs before; of one that was trained twice, the last. The end tells
// of the last epoch, which another rank may have told.
void Report::go_on(std::size_t epochs) {
  if (is_silent_) return;
  std::ifstream file(log_path(options_));
  std::map<std::size_t, EpochResult> results;
  for (std::string line; std::getline(file, line);) {
    try {
      const nlohmann::json one = nlohmann::json::parse(line);
      if (one.at("event") != "epoch") continue;
      EpochResult result;
      result.epoch = one.at("epoch");
      result.steps = one.at("steps");
      if (result.steps > 0) result.train_loss = one.at("train_loss");
      result.test = {one.at("test_loss"), one.at("test_accuracy"), one.at("test_samples")};
      results[result.epoch] = result;
    } catch (const nlohmann::json::exception&) {
      // Cut short: the chart lacks it.
    }
  }
  for (const auto& [number, result] : results) {
    if (number > epochs) break;
    const auto epoch = static_cast<double>(number);
    if (result.steps > 0) charts_.curve.push_back({epoch - 0.5, result.train_loss});
    charts_.epochs.push_back({epoch, result.test.loss, result.test.accuracy});
    last_ = result;
  }
}

void Report::note(const std::string& sentence) {
  if (is_silent_) return;
  progress_.clear();
  if (!options_.json) fmt::print(stderr, "unisono train: {}\n", sentence);
  log({{"event", "note"}, {"text", sentence}});
}

void Report::step(const ProgressState& state) {
  if (is_silent_) return;
  add_to_curve(state);
  progress_.update(state);
}

// So many steps' mean to a point that the curve stays a few hundred points.
void Report::add_to_curve(const ProgressState& state) {
  const std::size_t block = std::max<std::size_t>(state.steps * state.epochs / kCurvePointsMax, 1);
  block_sum_ += state.step_loss;
  if (++block_steps_ < block && state.step < state.steps) return;
  const double epoch = static_cast<double>(state.epoch - 1) +
                       static_cast<double>(state.step) / static_cast<double>(state.steps);
  charts_.curve.push_back({epoch, block_sum_ / static_cast<double>(block_steps_)});
  block_sum_ = 0;
  block_steps_ = 0;
}

void Report::epoch(const EpochResult& result) {
  if (is_silent_) return;
  last_ = result;
  charts_.epochs.push_back(
      {static_cast<double>(result.epoch), result.test.loss, result.test.accuracy});
  // Other ranks than those that go on may have taken the steps.
  const bool is_trained = result.steps > 0;
  print(fmt::format(
      "epoch {}/{}  {}test loss {:.4f}  test accuracy {:.2f} %  {}{}", result.epoch,
      options_.epochs, is_trained ? fmt::format("train loss {:.4f}  ", result.train_loss) : "",
      result.test.loss, 100 * result.test.accuracy,
      is_trained ? fmt::format("{} samples/s  ", grouped(result.samples_per_second)) : "",
      tools::format_duration(result.seconds)));
  log({{"event", "epoch"},
       {"epoch", result.epoch},
       {"steps", result.steps},
       {"train_loss",
        is_trained ? nlohmann::ordered_json(result.train_loss) : nlohmann::ordered_json()},
       {"test_loss", result.test.loss},
       {"test_accuracy", result.test.accuracy},
       {"test_samples", result.test.samples},
       {"samples_per_second", rounded(result.samples_per_second)},
       {"seconds", rounded(result.seconds)}});
}

void Report::end(const std::vector<TrainCost>& costs, std::size_t steps, double seconds) {
  if (is_silent_) return;
  steps = std::max<std::size_t>(steps, 1);  // where there were none, all counts are 0
  print_costs(costs, steps);
  for (const TrainCost& cost : costs) {
    log({{"event", "cost"},
         {"device", cost.device},
         {"peak_memory", cost.peak_memory},
         {"calls_per_step", by_kind(cost.calls, steps)},
         {"bytes_sent_per_step", by_kind(cost.bytes_sent, steps)},
         {"bytes_received_per_step", by_kind(cost.bytes_received, steps)}});
  }
  charts_.costs = costs;
  charts_.steps = steps;
  for (const std::string& sentence : draw_charts(options_.output, charts_)) print(sentence);
  log({{"event", "end"},
       {"test_accuracy", last_.test.accuracy},
       {"test_loss", last_.test.loss},
       {"seconds", rounded(seconds)}});
  const std::string result =
      fmt::format("test accuracy {:.2f} % of {} samples, test loss {:.4f}, {} in all",
                  100 * last_.test.accuracy, grouped(static_cast<double>(last_.test.samples)),
                  last_.test.loss, tools::format_duration(seconds));
  progress_.clear();
  if (!options_.json) fmt::print("{}\n", result);
}

void Report::print_costs(const std::vector<TrainCost>& costs, std::size_t steps) {
  tools::Table table({{counts_devices(options_) ? "device" : "rank"},
                      {"peak memory"},
                      {"sent/step"},
                      {"received/step"},
                      {"collective calls/step", tools::Align::kLeft}});
  for (const TrainCost& cost : costs) {
    double sent = 0, received = 0;
    std::string calls;
    for (std::size_t kind = 0; kind < cost.calls.size(); ++kind) {
      sent += static_cast<double>(cost.bytes_sent[kind]);
      received += static_cast<double>(cost.bytes_received[kind]);
      if (cost.calls[kind] == 0) continue;
      calls += fmt::format("{}{} {:.3g}", calls.empty() ? "" : ", ",
                           name_of(static_cast<Collective>(kind)),
                           static_cast<double>(cost.calls[kind]) / static_cast<double>(steps));
    }
    table.add_row({fmt::format("{}", cost.device), bytes(static_cast<double>(cost.peak_memory)),
                   bytes(sent / static_cast<double>(steps)),
                   bytes(received / static_cast<double>(steps)), calls.empty() ? "none" : calls});
  }
  std::string text = table.text();
  text.pop_back();
  print(text);
  if (options_.device == ComputeDevice::kCuda) {
    print("between GPUs of one host kernels move the bytes: sent and received are the host's");
  }
}

void Report::print(const std::string& line) {
  if (is_silent_) return;
  progress_.clear();
  if (options_.json || options_.quiet) return;
  fmt::print("{}\n", line);
  if (const Status flushed = tools::flush_output(); !flushed) {
    throw std::runtime_error(flushed.message());
  }
}

void Report::log(const nlohmann::ordered_json& line) {
  if (is_silent_) return;
  const std::string text = tools::json_text(line);
  log_ << text << '\n' << std::flush;
  if (!log_) {
    throw std::runtime_error(
        fmt::format("cannot write {}: {}", log_path(options_), std::strerror(errno)));
  }
  if (!options_.json) return;
  fmt::print("{}\n", text);
  if (const Status flushed = tools::flush_output(); !flushed) {
    throw std::runtime_error(flushed.message());
  }
}

}  // namespace unisono::train
