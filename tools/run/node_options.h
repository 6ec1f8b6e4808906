// What the launcher of a node has to know to meet those of the other nodes. Values.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fnv.h"
#include "base/handshake.h"
#include "tools/run/job_control.h"

namespace unisono::run {

struct NodeOptions {
  JobShape shape;
  int node = 0;
  std::string address;  ///< of node 0
  std::uint16_t port = 0;
  std::string interface_address;  ///< UNISONO_INTERFACE; empty: any
  JobKey key;
  std::string run_id;
  std::chrono::milliseconds patience{};  ///< with those that have not come

  /// What both sides prove that they know the key of; not everything fits there.
  std::string handshake_job_id() const {
    constexpr std::size_t kBytesMax = 64;
    const std::string id = "launchers of " + run_id;
    return id.size() <= kBytesMax ? id : fmt::format("launchers of {:016x}", fnv1a(run_id));
  }
};

}  // namespace unisono::run
