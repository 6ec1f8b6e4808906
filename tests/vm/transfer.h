// Bare transfers between processes over verbs: streams of RDMA writes or reads, and ping-pongs of
// writes with immediate. Each end is a process of its own, started and ended here; one thread each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono::vm {

enum class Operation { kWriteStream, kReadStream, kPingPong };

const char* name_of(Operation operation);

struct TransferCase {
  Operation operation = Operation::kWriteStream;
  std::uint32_t bytes = 0;  ///< of a message
  int streams = 1;          ///< pairs of processes at once; pair i goes from device i to device i+1
};

struct TransferOptions {
  std::vector<std::string> devices;
  int polls = 0;    ///< empty polls of a completion queue before each sched_yield
  int repeats = 7;  ///< that count; one more goes before them
  std::uint64_t stream_bytes = 64 << 20;  ///< of each stream in each repeat
  int rounds = 1000;                      ///< of each ping-pong in each repeat
};

/// One repeat, all streams together: from the first start to the last end.
struct Sample {
  double seconds = 0;
  std::uint64_t messages = 0;  ///< of one stream
};

/// Throws std::runtime_error where an end fails or the bytes that arrived are wrong.
std::vector<Sample> run_transfer(const TransferCase& transfer, const TransferOptions& options);

}  // namespace unisono::vm
