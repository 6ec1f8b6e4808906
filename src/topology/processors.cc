#include "topology/processors.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "topology/cpu_quota.h"

namespace unisono::topology {
namespace {

struct Deleter {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, Deleter>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Deleter>;

// Of this machine, or of a description.
Result<Topology> load_topology(const std::string& description = "") {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return Status(ErrorCode::kOutOfResources, "hwloc could not allocate a topology");
  }
  Topology topology(raw);
  if (!description.empty() && hwloc_topology_set_synthetic(raw, description.c_str()) != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("hwloc does not understand the topology '{}'", description));
  }
  if (hwloc_topology_load(raw) != 0) {
    return Status(
        ErrorCode::kSystem,
        fmt::format("hwloc could not read this machine's processors: {}", std::strerror(errno)));
  }
  return topology;
}

// hwloc knows what the control group allows; the affinity mask (taskset) narrows it further.
Bitmap allowed_cpus(hwloc_topology_t topology) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  Bitmap affinity(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, affinity.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
      hwloc_bitmap_intersects(allowed.get(), affinity.get())) {
    hwloc_bitmap_and(allowed.get(), allowed.get(), affinity.get());
  }
  return allowed;
}

std::vector<Core> read_cores(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  // Some virtual machines show processing units without cores.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> cores;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, type, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(topology, type, object)) {
    Core core;
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
      if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(cpu))) core.cpus.push_back(cpu);
    }
    core.numa_node = std::max(0, hwloc_bitmap_first(object->nodeset));
    if (const hwloc_obj_t cache =
            hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, object);
        cache != nullptr) {
      core.cache = hwloc_bitmap_first(cache->cpuset);
    }
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  return cores;
}

void read_last_level_cache(hwloc_topology_t topology, hwloc_const_bitmap_t allowed,
                           Processors* processors) {
  for (hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, nullptr);
       cache != nullptr; cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, cache)) {
    if (!hwloc_bitmap_intersects(cache->cpuset, allowed)) continue;
    processors->l3_bytes = std::max<std::size_t>(processors->l3_bytes, cache->attr->cache.size);
  }
}

Result<Processors> processors_of(hwloc_topology_t topology, const Bitmap& allowed) {
  Processors processors;
  processors.cores = read_cores(topology, allowed.get());
  if (processors.cores.empty()) {
    return Status(ErrorCode::kSystem, "hwloc found no processor that this process may use");
  }
  std::set<int> nodes;
  for (const Core& core : processors.cores) nodes.insert(core.numa_node);
  processors.numa_node_count = static_cast<int>(nodes.size());
  read_last_level_cache(topology, allowed.get(), &processors);
  return processors;
}

struct CpuSetDeleter {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

int Processors::usable_core_count() const {
  int count = static_cast<int>(cores.size());
  if (cpu_quota > 0 && cpu_quota < count) count = static_cast<int>(std::ceil(cpu_quota));
  return std::max(1, count);
}

Result<Processors> read_processors() {
  UNISONO_ASSIGN(const Topology topology, load_topology());
  UNISONO_ASSIGN(Processors processors,
                 processors_of(topology.get(), allowed_cpus(topology.get())));
  processors.cpu_quota = read_cpu_quota();
  return processors;
}

Result<Processors> made_up_processors(const std::string& description) {
  UNISONO_ASSIGN(const Topology topology, load_topology(description));
  return processors_of(topology.get(),
                       Bitmap(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get()))));
}

std::vector<int> recommended_binding(const Processors& processors, int rank, int size,
                                     Width width) {
  const int core_count = static_cast<int>(processors.cores.size());
  if (rank < 0 || size < 1 || rank >= size || size > core_count) return {};
  const auto part = [&](int r) {
    return static_cast<int>(static_cast<long long>(core_count) * r / size);
  };
  const int first = part(rank);
  const int end = width == Width::kCore ? first + 1 : part(rank + 1);
  std::vector<int> indices;
  for (int index = first; index < end; ++index) indices.push_back(index);
  return indices;
}

Place place_of(const Processors& processors, std::span<const int> core_indices) {
  Place place;
  for (std::size_t i = 0; i < core_indices.size(); ++i) {
    const Core& core = processors.cores[static_cast<std::size_t>(core_indices[i])];
    place.cache = i == 0 || place.cache == core.cache ? core.cache : -1;
    place.node = i == 0 || place.node == core.numa_node ? core.numa_node : -1;
  }
  return place;
}

Status bind_this_thread(const Processors& processors, std::span<const int> core_indices) {
  std::vector<int> cpus;
  for (const int index : core_indices) {
    if (index < 0 || static_cast<std::size_t>(index) >= processors.cores.size()) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("cannot bind to core {}: this process may use cores 0 to {}", index,
                                static_cast<int>(processors.cores.size()) - 1));
    }
    const Core& core = processors.cores[static_cast<std::size_t>(index)];
    cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  }
  if (cpus.empty()) return Status(ErrorCode::kInvalidArgument, "cannot bind to no core at all");
  const int cpu_count = *std::max_element(cpus.begin(), cpus.end()) + 1;
  const std::size_t bytes = CPU_ALLOC_SIZE(cpu_count);
  std::unique_ptr<cpu_set_t, CpuSetDeleter> set(CPU_ALLOC(cpu_count));
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  if (::sched_setaffinity(0, bytes, set.get()) != 0) {
    return Status(ErrorCode::kSystem, fmt::format("cannot bind to processor {}: {}", cpus.front(),
                                                  std::strerror(errno)));
  }
  return Status();
}

}  // namespace unisono::topology
