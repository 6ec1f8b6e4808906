// What a comparison prints: tables for people, JSON lines for programs. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/train/batch_memory.h"
#include "tools/train/compare_phases.h"
#include "tools/train/compare_run.h"

namespace unisono::train::comparison {

/// Strategies that tables look for.
inline constexpr const char* kDpName = "dp";
inline constexpr const char* kDpOutput1Name = "dp, output device 1";
inline constexpr const char* kDdpName = "ddp";

struct Comparison {
  std::string model, data;
  std::vector<std::string> notes;  ///< warnings of what is compared
  /// Of the batch, and of the whole workload (a line), where nobody chose them; may be empty.
  std::string samples_note, workload_note;
  int devices = 2;
  std::size_t samples = 0;  ///< per step
  std::string transport;    ///< of the ranks
  std::vector<int> gpus;    ///< of the devices; empty: the host
  CopyTimes copies;         ///< of a batch, where there are GPUs
  ObjectGather objects;     ///< the same
  ModelSize size;
  std::vector<Cost> costs;
  StepAccount account;
  std::vector<Extra> extras;
  std::vector<OutputUse> outputs;  ///< for output device 0, then 1
};

std::string text_of(const Comparison& comparison);
/// One object per line; "kind" tells what it is about.
std::string json_of(const Comparison& comparison);

// The parts of text_of(), each with its heading.
/// "" where all computes on the host.
std::string gpus_text(const Comparison& comparison);
std::string strategies_text(const Comparison& comparison);
std::string members_text(const Comparison& comparison);
std::string formulas_text(const Comparison& comparison);
std::string phases_text(const Comparison& comparison);
/// Which of dp and ddp to prefer, and why; "" where one of the two has not run.
std::string advice_text(const Comparison& comparison);
std::string extras_text(const Comparison& comparison);
/// "" where one of the two has not run.
std::string output_devices_text(const Comparison& comparison);
std::string outputs_text(const Comparison& comparison);
/// Bytes per step from each member (row) to each member (column).
std::string matrix_text(const Cost& cost);
/// The textbook's case: what outputs of a language model take where they are gathered.
std::string worked_text();

/// "1,234,567".
std::string grouped(std::uint64_t number);
/// "broadcast 1, reduce 1".
std::string calls_text(const TrafficReport& report, std::uint64_t steps);
/// Names of strategies whose measured traffic is not what was predicted; "" where all is.
std::string deviations(const Comparison& comparison);

}  // namespace unisono::train::comparison
