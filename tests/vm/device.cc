// Opening devices and connecting queue pairs; see device.h.
#include "tests/vm/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>

namespace unisono::vm {
namespace {

constexpr std::uint32_t kFirstPacket = 7;
constexpr std::uint8_t kReadsAtOnceMax = 16;

bool is_ipv4(const ibv_gid& gid) {
  constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

// By type and address, never by number: a table's order is the driver's affair.
void choose_gid(Device& device) {
  for (int i = 0; i < device.port.gid_tbl_len; ++i) {
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(device.context.get(), 1, static_cast<std::uint32_t>(i), &entry, 0) != 0) {
      continue;
    }
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    if (device.gid_index >= 0 && !is_ipv4(entry.gid)) continue;
    device.gid_index = i;
    device.gid = entry.gid;
    device.gid_is_ipv4 = is_ipv4(entry.gid);
    if (device.gid_is_ipv4) return;
  }
}

// A list of all devices, freed at the end of its scope.
class DeviceList {
 public:
  DeviceList() : first_(ibv_get_device_list(&count_)) {}
  ~DeviceList() {
    if (first_ != nullptr) ibv_free_device_list(first_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::span<ibv_device*> all() const {
    return {first_, first_ == nullptr ? 0 : static_cast<std::size_t>(count_)};
  }

 private:
  int count_ = 0;
  ibv_device** first_;
};

std::uint8_t reads_at_once(int supported) {
  return static_cast<std::uint8_t>(std::clamp<int>(supported, 1, kReadsAtOnceMax));
}

ibv_qp_attr ready_to_receive(const Device& device, const Address& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu =
      static_cast<ibv_mtu>(std::min<int>(device.port.active_mtu, static_cast<int>(peer.mtu)));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = kFirstPacket;
  attributes.max_dest_rd_atomic = reads_at_once(device.attributes.max_qp_rd_atom);
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = peer.lid;
  if (device.gid_index >= 0) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = peer.gid;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index);
    attributes.ah_attr.grh.hop_limit = 64;
  }
  return attributes;
}

}  // namespace

std::vector<std::string> device_names() {
  const DeviceList list;
  std::vector<std::string> names;
  for (ibv_device* device : list.all()) names.emplace_back(ibv_get_device_name(device));
  std::sort(names.begin(), names.end());
  return names;
}

Device open_device(const std::string& name) {
  const DeviceList list;
  for (ibv_device* candidate : list.all()) {
    if (name != ibv_get_device_name(candidate)) continue;
    Device device;
    device.name = name;
    device.context.reset(ibv_open_device(candidate));
    if (!device.context) throw std::runtime_error(name + " cannot be opened");
    device.pd.reset(ibv_alloc_pd(device.context.get()));
    if (!device.pd || ibv_query_device(device.context.get(), &device.attributes) != 0 ||
        ibv_query_port(device.context.get(), 1, &device.port) != 0) {
      throw std::runtime_error(name + " cannot be queried");
    }
    choose_gid(device);
    return device;
  }
  throw std::runtime_error("no verbs device " + name);
}

Owned<ibv_mr> register_memory(const Device& device, void* address, std::size_t bytes, int access) {
  return Owned<ibv_mr>(ibv_reg_mr(device.pd.get(), address, bytes, static_cast<unsigned>(access)));
}

Memory::Memory(std::size_t bytes, bool shared) : bytes_(bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::runtime_error("no memory for " + std::to_string(bytes));
  data_ = static_cast<std::byte*>(pages);
}

Memory::~Memory() { munmap(data_, bytes_); }

Owned<ibv_qp> make_queue_pair(const Device& device, ibv_cq* cq, const QueueLimits& limits,
                              ibv_srq* srq, ibv_qp_type type) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.srq = srq;
  attributes.qp_type = type;
  attributes.cap.max_send_wr = limits.depth;
  attributes.cap.max_recv_wr = limits.depth;
  attributes.cap.max_send_sge = limits.gather;
  attributes.cap.max_recv_sge = limits.gather;
  attributes.cap.max_inline_data = limits.inline_bytes;
  return Owned<ibv_qp>(ibv_create_qp(device.pd.get(), &attributes));
}

Address address_of(const Device& device, const ibv_qp* queue_pair) {
  return {.queue_pair = queue_pair->qp_num,
          .lid = device.port.lid,
          .mtu = static_cast<std::uint8_t>(device.port.active_mtu),
          .gid = device.gid};
}

int connect(const Device& device, ibv_qp* queue_pair, const Address& peer, const Retries& retries) {
  ibv_qp_attr start{};
  start.qp_state = IBV_QPS_INIT;
  start.port_num = 1;
  start.qp_access_flags = kAllAccess;
  if (const int error =
          ibv_modify_qp(queue_pair, &start,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    return error;
  }
  ibv_qp_attr receive = ready_to_receive(device, peer);
  if (const int error =
          ibv_modify_qp(queue_pair, &receive,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    return error;
  }
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = retries.timeout;
  send.retry_cnt = retries.count;
  send.rnr_retry = retries.not_ready;
  send.sq_psn = kFirstPacket;
  send.max_rd_atomic = reads_at_once(device.attributes.max_qp_init_rd_atom);
  return ibv_modify_qp(queue_pair, &send,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace unisono::vm
