// The few verbs that the programs of this folder need: open a device, register memory, connect two
// queue pairs. Plain libibverbs, so that nothing of unisono stands between figure and device. One
// thread per object; whoever makes an object keeps those it came from alive.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace unisono::vm {

struct Closer {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  void operator()(ibv_srq* srq) const { ibv_destroy_srq(srq); }
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
  void operator()(ibv_mw* window) const { ibv_dealloc_mw(window); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
};

template <typename T>
using Owned = std::unique_ptr<T, Closer>;

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Port 1 of a device.
struct Device {
  std::string name;
  Owned<ibv_context> context;
  Owned<ibv_pd> pd;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  int gid_index = -1;  ///< of the RoCE v2 address of IPv4, else of any RoCE v2 address; -1: none
  bool gid_is_ipv4 = false;
  ibv_gid gid{};
};

std::vector<std::string> device_names();

/// Throws std::runtime_error where it is missing or cannot be opened.
Device open_device(const std::string& name);

/// Null with errno set where the device refuses.
Owned<ibv_mr> register_memory(const Device& device, void* address, std::size_t bytes,
                              int access = kAllAccess);

/// Zeroed pages of this process; shared with its children if `shared`.
class Memory {
 public:
  explicit Memory(std::size_t bytes, bool shared = false);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

struct QueueLimits {
  std::uint32_t depth = 64;
  std::uint32_t gather = 4;
  std::uint32_t inline_bytes = 0;
};

/// Null with errno set where the device refuses.
Owned<ibv_qp> make_queue_pair(const Device& device, ibv_cq* cq, const QueueLimits& limits = {},
                              ibv_srq* srq = nullptr, ibv_qp_type type = IBV_QPT_RC);

/// What one end of a connection has to know of the other; plain bytes, for a pipe.
struct Address {
  std::uint32_t queue_pair = 0;
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;
  ibv_gid gid{};
};

Address address_of(const Device& device, const ibv_qp* queue_pair);

struct Retries {
  std::uint8_t timeout = 14;
  std::uint8_t count = 6;  ///< 7 is without end on soft-RoCE
  std::uint8_t not_ready = 6;
};

/// RESET to RTS; 0 or the errno of the transition that failed.
int connect(const Device& device, ibv_qp* queue_pair, const Address& peer,
            const Retries& retries = {});

}  // namespace unisono::vm
