// How a command line is refused. Pure; safe from any thread.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "base/result.h"

namespace unisono::tools {

/// kInvalidArgument with a text of fmt's.
template <typename... Values>
Status invalid(fmt::format_string<Values...> text, Values&&... values) {
  return Status(ErrorCode::kInvalidArgument, fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace unisono::tools
