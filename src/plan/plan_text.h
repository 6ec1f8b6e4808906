// The text form of a plan, for golden files, logs and `unisono plan`. Stable: a change here changes
// every golden file. Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace unisono::plan {

/// "send", "receive", "receive_reduce", "copy", "reduce".
std::string_view name_of(StepKind kind);

/// "output[4..8)", "scratch[2]", "nothing".
std::string text_of(const ChunkRange& range);

/// One step without its dependencies: "receive_reduce from 3 #0 output[3] = message + input[3]".
std::string text_of(const Step& step);

/// The whole plan, one line a step, each with its index and the steps it waits for.
std::string text_of(const Plan& plan);

}  // namespace unisono::plan
