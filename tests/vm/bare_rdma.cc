// What the verbs device yields without unisono, as the measure of the verbs transport in the same
// guest and boot: bandwidth of RDMA write and read streams, round trips of writes with immediate,
// and the speed of adding that a reduction needs. One JSON object a line, then a table.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/device.h"
#include "tests/vm/transfer.h"

namespace unisono::vm {
namespace {

struct Row {
  std::string operation;
  std::uint64_t bytes = 0;
  int streams = 1;
  std::vector<double> seconds_per_message;  ///< of each repeat, sorted; of all streams together

  double median() const { return seconds_per_message[seconds_per_message.size() / 2]; }
  double bandwidth(double seconds) const { return static_cast<double>(bytes) * streams / seconds; }
  bool is_ping_pong() const { return operation == name_of(Operation::kPingPong); }
};

Row measure(const TransferCase& transfer, const TransferOptions& options) {
  Row row{.operation = name_of(transfer.operation),
          .bytes = transfer.bytes,
          .streams = transfer.streams};
  for (const Sample& sample : run_transfer(transfer, options)) {
    row.seconds_per_message.push_back(sample.seconds / static_cast<double>(sample.messages));
  }
  std::sort(row.seconds_per_message.begin(), row.seconds_per_message.end());
  return row;
}

// Adding 32-bit floats of one buffer to another, on one core; bytes are those of one buffer.
Row measure_add(std::uint64_t bytes, int repeats) {
  constexpr int kRounds = 8;
  std::vector<float> sum(bytes / sizeof(float), 1.0F);
  const std::vector<float> other(sum.size(), 0.5F);
  Row row{.operation = "add_float32", .bytes = bytes};
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      // Keeps the rounds apart: else the compiler adds all of them while an element is at hand.
      asm volatile("" : : "r"(sum.data()) : "memory");
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    row.seconds_per_message.push_back(took.count() / kRounds);
  }
  std::sort(row.seconds_per_message.begin(), row.seconds_per_message.end());
  return row;
}

void print_json(const Row& row, const TransferOptions& options) {
  nlohmann::ordered_json line{{"operation", row.operation},
                              {"bytes", row.bytes},
                              {"streams", row.streams},
                              {"devices", options.devices.size()},
                              {"repeats", row.seconds_per_message.size()}};
  const double best = row.seconds_per_message.front();
  const double worst = row.seconds_per_message.back();
  if (row.is_ping_pong()) {
    line["polls"] = options.polls;
    line["round_trip_us"] = row.median() * 1e6;
    line["round_trip_us_min"] = best * 1e6;
    line["round_trip_us_max"] = worst * 1e6;
  } else {
    line["bytes_per_second"] = row.bandwidth(row.median());
    line["bytes_per_second_min"] = row.bandwidth(worst);
    line["bytes_per_second_max"] = row.bandwidth(best);
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void print_table(const std::vector<Row>& rows) {
  std::printf("\n%-20s %9s %7s %12s %12s %12s\n", "operation", "bytes", "streams", "median",
              "worst", "best");
  for (const Row& row : rows) {
    const auto shown = [&row](double seconds) {
      return row.is_ping_pong() ? seconds * 1e6 : row.bandwidth(seconds) / 1e6;
    };
    std::printf("%-20s %9llu %7d %12.1f %12.1f %12.1f  %s\n", row.operation.c_str(),
                static_cast<unsigned long long>(row.bytes), row.streams, shown(row.median()),
                shown(row.seconds_per_message.back()), shown(row.seconds_per_message.front()),
                row.is_ping_pong() ? "us round trip" : "MB/s of all streams");
  }
}

std::vector<TransferCase> all_cases(const std::vector<std::uint32_t>& stream_bytes,
                                    const std::vector<std::uint32_t>& ping_pong_bytes,
                                    const std::vector<int>& streams) {
  std::vector<TransferCase> cases;
  for (const Operation operation : {Operation::kWriteStream, Operation::kReadStream}) {
    for (const int count : streams) {
      for (const std::uint32_t bytes : stream_bytes) cases.push_back({operation, bytes, count});
    }
  }
  for (const std::uint32_t bytes : ping_pong_bytes) {
    cases.push_back({Operation::kPingPong, bytes, 1});
  }
  return cases;
}

int run(int argc, char** argv) {
  TransferOptions options;
  std::vector<std::uint32_t> stream_bytes{256 << 10, 1 << 20, 4 << 20};
  std::vector<std::uint32_t> ping_pong_bytes{8, 256, 4096, 65536};
  std::vector<int> streams{1, 4};
  bool check = false;
  // As the library's engine: with no core for each of the two, every empty look yields.
  options.polls = std::thread::hardware_concurrency() < 2 ? 0 : 20'000;

  CLI::App app("bare figures of verbs devices, without unisono");
  app.add_option("--device", options.devices, "devices to use (default: all)");
  app.add_option("--stream-bytes", stream_bytes, "message sizes of the streams");
  app.add_option("--ping-pong-bytes", ping_pong_bytes, "message sizes of the ping-pongs");
  app.add_option("--streams", streams, "how many streams at once");
  app.add_option("--polls", options.polls, "empty polls before each sched_yield");
  app.add_option("--repeats", options.repeats, "that count, of each case")
      ->check(CLI::Range(1, 99));
  app.add_option("--rounds", options.rounds, "of each ping-pong in each repeat");
  app.add_flag("--check", check, "little of everything: do the right bytes arrive?");
  CLI11_PARSE(app, argc, argv);

  if (options.devices.empty()) options.devices = device_names();
  if (options.devices.empty()) {
    std::fprintf(stderr, "bare_rdma: no verbs device on this machine\n");
    return 1;
  }
  if (check) {
    options.repeats = 1;
    options.rounds = 100;
    options.stream_bytes = 8 << 20;
  }
  std::vector<Row> rows;
  for (const TransferCase& transfer : all_cases(stream_bytes, ping_pong_bytes, streams)) {
    rows.push_back(measure(transfer, options));
    print_json(rows.back(), options);
  }
  for (const std::uint32_t bytes : stream_bytes) {
    rows.push_back(measure_add(bytes, options.repeats));
    print_json(rows.back(), options);
  }
  print_table(rows);
  return 0;
}

}  // namespace
}  // namespace unisono::vm

int main(int argc, char** argv) {
  try {
    return unisono::vm::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bare_rdma: %s\n", error.what());
    return 1;
  }
}
