// What the launcher of a node has to know to meet those of the other nodes. Values.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

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
  std::string handshake_job_id() const;
};

}  // namespace unisono::run
