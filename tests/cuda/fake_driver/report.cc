#include "tests/cuda/fake_driver/report.h"

#include <unistd.h>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/kernels.h"
#include "tests/cuda/fake_driver/machine.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"
#include "tests/cuda/fake_driver/transfers.h"

namespace fake_cuda {
namespace {

std::uint64_t report_context_leaks() {
  std::uint64_t count = 0;
  for (std::size_t ordinal = 0; ordinal < machine().primaries.size(); ++ordinal) {
    const int retained = machine().primaries[ordinal].retained;
    if (retained == 0) continue;
    complain("leak: the primary context of device " + std::to_string(ordinal) + ", retained " +
             std::to_string(retained) + " times");
    count += static_cast<std::uint64_t>(retained);
  }
  return count;
}

// A destructor of the library itself runs after those of the program's objects.
__attribute__((destructor)) void at_exit() {
  if (settings().leaks == Settings::Leaks::kIgnore || report_leaks() == 0) return;
  if (settings().leaks == Settings::Leaks::kFail) _exit(66);
}

}  // namespace

Counts count_all() {
  const Lock lock(machine().mutex);
  const MemoryCounts in_memory = count_memory();
  Counts counts;
  counts.allocations = in_memory.allocations;
  counts.host_ranges = in_memory.host_ranges;
  counts.virtual_parts = in_memory.virtual_parts;
  counts.imports = in_memory.imports;
  counts.streams = count_live_streams();
  counts.events = count_live_events();
  counts.libraries = count_libraries();
  counts.graphs = count_graphs();
  for (const Machine::Primary& primary : machine().primaries) {
    counts.contexts += static_cast<std::uint64_t>(primary.retained);
  }
  counts.launches = count_launches();
  counts.copied_bytes = copied_bytes();
  counts.errors = complaints();
  return counts;
}

std::uint64_t report_leaks() {
  const Lock lock(machine().mutex);
  return report_memory_leaks() + report_handle_leaks() + report_stream_leaks() +
         report_event_leaks() + report_library_leaks() + report_graph_leaks() +
         report_context_leaks();
}

}  // namespace fake_cuda
