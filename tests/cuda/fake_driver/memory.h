// Memory of the fake devices. A block is a memfd; mapping it gives it an address in a range that no
// host code may ever touch (PROT_NONE) and, at the same distance in a second range, the alias that
// kernels and copies work through.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tests/cuda/fake_driver/fake_cuda.h"
#include "tests/cuda/fake_driver/machine.h"

/// The memory pool of a device.
struct CUmemPoolHandle_st {
  std::set<int> peers;  ///< physical devices with access, beside its own
};

namespace fake_cuda {

constexpr std::uint64_t kGranularity = 2ull << 20;  ///< of VMM, and of what an IPC handle exposes

/// Physical memory: here, or of another process and opened here.
struct Block {
  int fd = -1;
  std::uint64_t bytes = 0;
  int physical = 0;  ///< its device
  bool imported = false;
  bool exportable = false;
  ~Block();
};
using BlockPointer = std::shared_ptr<Block>;

struct Mapping {
  enum class Kind { kAllocation, kVirtual, kImport, kPool };
  Kind kind = Kind::kAllocation;
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  ///< as asked for; the mapping itself is rounded up to pages
  BlockPointer block;
  CUctx_st* context = nullptr;  ///< null: of a VMM mapping
  std::uint64_t buffer_id = 0;
  std::set<int> readers;  ///< kVirtual: devices with access
  std::set<int> writers;
  int opened = 0;      ///< kImport: how often
  std::string source;  ///< kImport: the handle's bytes
};

/// Host memory that devices may touch.
struct HostRange {
  std::uint64_t bytes = 0;
  bool allocated = false;  ///< by cuMemHostAlloc, otherwise registered
  CUctx_st* context = nullptr;
};

struct Memory {
  std::map<std::uint64_t, Mapping> mappings;            ///< by base
  std::map<std::uint64_t, std::uint64_t> reservations;  ///< cuMemAddressReserve: base, bytes
  std::map<std::uint64_t, HostRange> host;
  std::map<int, std::uint64_t> used_bytes;  ///< by physical device
  std::map<int, CUmemPoolHandle_st> pools;  ///< by physical device
  std::uint64_t buffers = 0;                ///< numbers given so far
  /// What running operations touch, so that taking it away is noticed.
  struct Use {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    CUctx_st* context = nullptr;
  };
  std::list<Use> uses;
};
Memory& memory();

// With the machine's lock held.

/// A block of `bytes` that counts against the device's memory; null when there is not enough.
BlockPointer make_block(int physical, std::uint64_t bytes);
/// A fresh stretch of the addresses of a device (`arena` = physical number) or of reservations
/// (kDevicesMax); 0 when all are used up.
std::uint64_t take_addresses(int arena, std::uint64_t bytes);
void give_back_addresses(int arena, std::uint64_t base, std::uint64_t bytes);
/// Puts the block's memory behind the addresses, or takes it away.
bool map_alias(std::uint64_t base, const Block& block, std::uint64_t offset, std::uint64_t bytes);
void unmap_alias(std::uint64_t base, std::uint64_t bytes);
bool is_device_address(std::uint64_t address);
void* alias_of(std::uint64_t address);

/// The mapping or host range that holds the address; null without one.
Mapping* find_mapping(std::uint64_t address);
const std::pair<const std::uint64_t, HostRange>* find_host(std::uint64_t address);

/// Where host code of an operation in `context` may touch these bytes; null, with the reason, where
/// the device may not. `pageable` lets ordinary host memory through, as copies do.
void* resolve(const CUctx_st& context, std::uint64_t address, std::uint64_t bytes, Access access,
              bool pageable, std::string* why);
/// Complains where an operation is running on these bytes, and breaks its context.
void check_unused(std::uint64_t base, std::uint64_t bytes, const char* action);

std::string hex(std::uint64_t address);

struct MemoryCounts {
  std::uint64_t allocations = 0;
  std::uint64_t host_ranges = 0;
  std::uint64_t virtual_parts = 0;
  std::uint64_t imports = 0;
};
MemoryCounts count_memory();
std::uint64_t count_handles();
std::uint64_t report_memory_leaks();
std::uint64_t report_handle_leaks();

/// Ranges that an operation touches while it runs; without the lock.
class Uses final : public Translator {
 public:
  /// `what` names the operation in the loud line.
  Uses(CUctx_st& context, std::string what) : context_(context), what_(std::move(what)) {}
  ~Uses() override;
  Uses(const Uses&) = delete;
  void* at(const void* pointer, std::size_t bytes, Access access) override {
    return find(pointer, bytes, access, false);
  }
  /// The same for copies, which may use ordinary host memory too.
  void* copy_at(const void* pointer, std::size_t bytes, Access access) {
    return find(pointer, bytes, access, true);
  }
  bool failed() const { return failed_; }

 private:
  void* find(const void* pointer, std::size_t bytes, Access access, bool pageable);
  CUctx_st& context_;
  const std::string what_;
  std::vector<std::list<Memory::Use>::iterator> held_;
  bool failed_ = false;
};

}  // namespace fake_cuda
