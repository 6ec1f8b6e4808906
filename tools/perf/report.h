// Prints what was measured: a table for people, JSON or CSV lines for programs. Only rank 0 has
// one. Standard output carries the rows; the progress line goes to standard error.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/common/table.h"
#include "tools/common/terminal.h"
#include "tools/perf/device_floor.h"
#include "tools/perf/measure.h"
#include "tools/perf/options.h"

namespace unisono::perf {

/// What holds for the whole run.
struct Surroundings {
  std::string communicator;  ///< Communicator::describe()
  int ranks = 1;
  bool is_shared_page = true;
  Timing empty;
  std::size_t cache_bytes = 0;
  std::string device;  ///< of rank 0, where the memory is a GPU's
  Floor floor;         ///< of it; rank 0 alone has one
  bool has_several_devices = false;
};

class Report {
 public:
  Report(const Options& options, const Surroundings& surroundings, std::uint64_t rows);

  void header();
  /// Before a row is measured.
  void progress(std::uint64_t done, const Row& row);
  void row(const Row& row);
  /// Once more, behind all rows: clocks may have changed.
  void floor_at_end(const Floor& floor);
  void footer(std::uint64_t rows, std::uint64_t wrong);
  /// Nobody reads any more, and there is no reason to go on.
  bool is_unread() const { return is_unread_; }

 private:
  void flush();
  std::vector<std::string> cells(const Row& row) const;
  /// Of the row, in microseconds; 0: not known.
  double floor_of(const Row& row) const;
  std::string csv_line(const Row& row) const;
  std::string json_line(const Row& row) const;
  void add_device(const Row& row, nlohmann::ordered_json& line) const;
  bool is_on_device() const { return options_.memory == MemoryKind::kCuda; }

  const Options& options_;
  const Surroundings& surroundings_;
  tools::Table table_;
  tools::ProgressLine progress_;
  bool is_unread_ = false;
};

}  // namespace unisono::perf
