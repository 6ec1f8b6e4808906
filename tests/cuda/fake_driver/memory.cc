#include "tests/cuda/fake_driver/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/memfd.h"

namespace fake_cuda {
namespace {

constexpr std::uint64_t kArenaBytes = 16ull << 30;
constexpr int kArenas = kDevicesMax + 1;
constexpr std::uint64_t kPage = 4096;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Both ranges are reserved once and never given back. Addresses that nothing is mapped at fault in
// either of them.
struct Ranges {
  std::uint64_t device = 0;
  std::uint64_t alias = 0;
  std::uint64_t next[kArenas] = {};
  std::multimap<std::uint64_t, std::uint64_t> freed[kArenas];  // bytes, base

  Ranges() {
    device = reserve();
    alias = reserve();
    for (int i = 0; i < kArenas; ++i)
      next[i] = device + static_cast<std::uint64_t>(i) * kArenaBytes;
  }

  static std::uint64_t reserve() {
    void* range = mmap(nullptr, kArenaBytes * kArenas, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
      std::perror("fake CUDA driver: cannot reserve addresses");
      std::abort();
    }
    return round_up(reinterpret_cast<std::uint64_t>(range), kGranularity);
  }
};

Ranges& ranges() {
  static Ranges* const value = new Ranges;
  return *value;
}

bool may_access(const CUctx_st& context, const Mapping& mapping, Access access) {
  if (mapping.kind == Mapping::Kind::kVirtual) {
    const std::set<int>& devices = access == Access::kRead ? mapping.readers : mapping.writers;
    return devices.contains(context.physical);
  }
  if (mapping.kind == Mapping::Kind::kImport && mapping.context == &context) return true;
  if (mapping.kind == Mapping::Kind::kPool && mapping.block->physical != context.physical) {
    return memory().pools[mapping.block->physical].peers.contains(context.physical);
  }
  return mapping.block->physical == context.physical ||
         context.peers.contains(mapping.block->physical);
}

bool overlap(std::uint64_t base, std::uint64_t bytes, std::uint64_t other, std::uint64_t count) {
  return base < other + count && other < base + bytes;
}

// Reservations may hold several mappings side by side; anything else ends where it ends.
bool resolve_device(const CUctx_st& context, std::uint64_t address, std::uint64_t bytes,
                    Access access, std::string* why) {
  std::uint64_t at = address;
  while (at < address + bytes) {
    const Mapping* mapping = find_mapping(at);
    if (mapping == nullptr) {
      *why = at == address ? "there is no memory (freed, unmapped or never allocated)"
                           : "the allocation ends before it";
      return false;
    }
    if (!may_access(context, *mapping, access)) {
      *why = mapping->kind == Mapping::Kind::kVirtual
                 ? "cuMemSetAccess gave this device no such right"
             : mapping->kind == Mapping::Kind::kPool
                 ? "cuMemPoolSetAccess gave this device no such right"
                 : "peer access to the memory's device is not enabled";
      return false;
    }
    const std::uint64_t end = mapping->base + mapping->bytes;
    if (end < address + bytes && mapping->kind != Mapping::Kind::kVirtual) {
      *why = "the allocation of " + std::to_string(mapping->bytes) + " bytes ends before it";
      return false;
    }
    at = end;
  }
  return true;
}

}  // namespace

Block::~Block() {
  if (fd >= 0) close(fd);
  if (!imported) memory().used_bytes[physical] -= bytes;
}

Memory& memory() {
  static Memory* const value = new Memory;
  return *value;
}

BlockPointer make_block(int physical, std::uint64_t bytes) {
  const std::uint64_t rounded = round_up(bytes, kPage);
  std::uint64_t& used = memory().used_bytes[physical];
  if (rounded < bytes || rounded > settings().memory_bytes ||
      used > settings().memory_bytes - rounded) {
    return nullptr;
  }
  // The name tells a process that imports the descriptor which device the memory is on.
  const std::string name = "fake_cuda_device_" + std::to_string(physical);
  auto block = std::make_shared<Block>();
  block->imported = true;  // until it counts
  block->fd = unisono::make_memfd(name.c_str(), MFD_CLOEXEC).release();
  if (block->fd < 0 || ftruncate(block->fd, static_cast<off_t>(rounded)) != 0) return nullptr;
  block->imported = false;
  block->bytes = rounded;
  block->physical = physical;
  used += rounded;
  return block;
}

std::uint64_t take_addresses(int arena, std::uint64_t bytes) {
  Ranges& r = ranges();
  const std::uint64_t rounded = round_up(bytes, kGranularity);
  auto& freed = r.freed[arena];
  const std::uint64_t end =
      r.device + (static_cast<std::uint64_t>(arena) + 1) * kArenaBytes - kGranularity;
  const bool is_full = rounded > end || r.next[arena] > end - rounded;
  if (settings().reuse_addresses || is_full) {
    const auto found =
        settings().reuse_addresses ? freed.find(rounded) : freed.lower_bound(rounded);
    if (found != freed.end()) {
      const std::uint64_t base = found->second;
      freed.erase(found);
      return base;
    }
  }
  if (is_full) return 0;
  const std::uint64_t base = r.next[arena];
  // A gap, so that running past an allocation never runs into the next.
  r.next[arena] += rounded + kGranularity;
  return base;
}

void give_back_addresses(int arena, std::uint64_t base, std::uint64_t bytes) {
  ranges().freed[arena].emplace(round_up(bytes, kGranularity), base);
}

bool map_alias(std::uint64_t base, const Block& block, std::uint64_t offset, std::uint64_t bytes) {
  void* at = alias_of(base);
  return mmap(at, round_up(bytes, kPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block.fd,
              static_cast<off_t>(offset)) == at;
}

void unmap_alias(std::uint64_t base, std::uint64_t bytes) {
  mmap(alias_of(base), round_up(bytes, kPage), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool is_device_address(std::uint64_t address) {
  return address >= ranges().device && address < ranges().device + kArenaBytes * kArenas;
}

void* alias_of(std::uint64_t address) {
  return reinterpret_cast<void*>(address - ranges().device + ranges().alias);
}

Mapping* find_mapping(std::uint64_t address) {
  auto after = memory().mappings.upper_bound(address);
  if (after == memory().mappings.begin()) return nullptr;
  Mapping& mapping = std::prev(after)->second;
  return address - mapping.base < mapping.bytes ? &mapping : nullptr;
}

const std::pair<const std::uint64_t, HostRange>* find_host(std::uint64_t address) {
  auto after = memory().host.upper_bound(address);
  if (after == memory().host.begin()) return nullptr;
  const auto& range = *std::prev(after);
  return address - range.first < range.second.bytes ? &range : nullptr;
}

void* resolve(const CUctx_st& context, std::uint64_t address, std::uint64_t bytes, Access access,
              bool pageable, std::string* why) {
  if (address + bytes < address) {
    *why = "its end is beyond all addresses";
    return nullptr;
  }
  if (is_device_address(address)) {
    return resolve_device(context, address, bytes, access, why) ? alias_of(address) : nullptr;
  }
  if (pageable) return reinterpret_cast<void*>(address);
  const auto* range = find_host(address);
  if (range == nullptr || address + bytes > range->first + range->second.bytes) {
    *why = "it is ordinary host memory, not page-locked, or longer than what is";
    return nullptr;
  }
  return reinterpret_cast<void*>(address);
}

void check_unused(std::uint64_t base, std::uint64_t bytes, const char* action) {
  for (const Memory::Use& use : memory().uses) {
    if (!overlap(base, bytes, use.base, use.bytes)) continue;
    break_context(
        *use.context, CUDA_ERROR_ILLEGAL_ADDRESS,
        std::string(action) + " of " + hex(base) + " while an operation works on " + hex(use.base));
  }
}

std::string hex(std::uint64_t address) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

Uses::~Uses() {
  const Lock lock(machine().mutex);
  for (const auto& use : held_) memory().uses.erase(use);
}

void* Uses::find(const void* pointer, std::size_t bytes, Access access, bool pageable) {
  if (pointer == nullptr || bytes == 0) return nullptr;
  const Lock lock(machine().mutex);
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  std::string why;
  void* found = resolve(context_, address, bytes, access, pageable, &why);
  if (found == nullptr) {
    failed_ = true;
    break_context(context_, CUDA_ERROR_ILLEGAL_ADDRESS,
                  what_ + (access == Access::kRead ? " reads " : " writes ") +
                      std::to_string(bytes) + " bytes at " + hex(address) + ": " + why);
    return nullptr;
  }
  held_.push_back(memory().uses.insert(memory().uses.end(), {address, bytes, &context_}));
  return found;
}

MemoryCounts count_memory() {
  MemoryCounts counts;
  for (const auto& [base, mapping] : memory().mappings) {
    if (mapping.kind == Mapping::Kind::kAllocation) ++counts.allocations;
    if (mapping.kind == Mapping::Kind::kPool) ++counts.allocations;
    if (mapping.kind == Mapping::Kind::kVirtual) ++counts.virtual_parts;
    if (mapping.kind == Mapping::Kind::kImport) ++counts.imports;
  }
  counts.virtual_parts += memory().reservations.size() + count_handles();
  counts.host_ranges = memory().host.size();
  return counts;
}

std::uint64_t report_memory_leaks() {
  const char* const kinds[]{"allocation", "mapping", "opened IPC handle", "pool memory"};
  for (const auto& [base, mapping] : memory().mappings) {
    complain(std::string("leak: ") + kinds[static_cast<int>(mapping.kind)] + " of " +
             std::to_string(mapping.bytes) + " bytes at " + hex(base));
  }
  for (const auto& [base, bytes] : memory().reservations) {
    complain("leak: reservation of " + std::to_string(bytes) + " bytes at " + hex(base));
  }
  for (const auto& [base, range] : memory().host) {
    complain(std::string("leak: host memory ") + (range.allocated ? "allocated" : "registered") +
             ", " + std::to_string(range.bytes) + " bytes at " + hex(base));
  }
  return memory().mappings.size() + memory().reservations.size() + memory().host.size();
}

}  // namespace fake_cuda
