#include "tools/run/node_options.h"

#include <fmt/format.h>

#include "base/fnv.h"

namespace unisono::run {

std::string NodeOptions::handshake_job_id() const {
  constexpr std::size_t kBytesMax = 64;
  const std::string id = "launchers of " + run_id;
  return id.size() <= kBytesMax ? id : fmt::format("launchers of {:016x}", fnv1a(run_id));
}

}  // namespace unisono::run
