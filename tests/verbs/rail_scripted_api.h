// Verbs devices as a test writes them down: ports, GIDs, partitions, limits, and which call fails
// how. It moves no data: it answers questions, counts what is open, and reports events through a
// real pipe. One thread.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/rail.h"

namespace unisono::verbs {

struct ScriptedPort {
  ibv_port_attr attributes{};
  std::vector<ibv_gid_entry> gids;  ///< all zero: an empty entry
  std::vector<std::uint16_t> pkeys{0xffff};
};

struct ScriptedDevice {
  std::string name;
  ibv_device handle{};
  ibv_device_attr attributes{};
  std::vector<ScriptedPort> ports;
};

inline ibv_gid_entry gid_entry(ibv_gid_type type, const std::string& address) {
  ibv_gid_entry entry{};
  entry.gid_type = type;
  if (!address.empty()) {
    EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), entry.gid.raw), 1) << address;
  }
  return entry;
}

/// An active 100 Gb/s RoCE port with the usual table: link-local, then the address.
inline ScriptedPort roce_port(const std::string& address = "::ffff:10.0.0.1") {
  ScriptedPort port;
  port.attributes.state = IBV_PORT_ACTIVE;
  port.attributes.active_mtu = IBV_MTU_4096;
  port.attributes.max_msg_sz = 1u << 30;
  port.attributes.active_speed = 32;
  port.attributes.active_width = 2;
  port.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.gids = {gid_entry(IBV_GID_TYPE_ROCE_V1, "fe80::1"),
               gid_entry(IBV_GID_TYPE_ROCE_V2, "fe80::1"), gid_entry(IBV_GID_TYPE_ROCE_V1, address),
               gid_entry(IBV_GID_TYPE_ROCE_V2, address)};
  return port;
}

inline ScriptedPort infiniband_port() {
  ScriptedPort port = roce_port();
  port.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  port.attributes.lid = 7;
  port.gids = {gid_entry(IBV_GID_TYPE_IB, "fe80::2:c903")};
  return port;
}

inline ScriptedDevice device_of(std::string name, std::vector<ScriptedPort> ports) {
  ScriptedDevice device;
  device.name = std::move(name);
  device.attributes.max_cqe = 1 << 20;
  device.attributes.max_srq = 64;
  device.attributes.max_srq_wr = 32767;
  device.attributes.max_qp_wr = 8192;
  device.attributes.max_qp_rd_atom = 16;
  device.attributes.max_qp_init_rd_atom = 12;
  device.ports = std::move(ports);
  return device;
}

class ScriptedApi final : public VerbsApi {
 public:
  struct Open {
    int lists = 0, contexts = 0, pds = 0, mrs = 0, cqs = 0, srqs = 0;
    int sum() const { return lists + contexts + pds + mrs + cqs + srqs; }
  };

  std::deque<ScriptedDevice> devices;
  std::map<std::string, int> failing;  ///< errno of every such call; "open_device mlx5_1" too
  int refused_access = 0;              ///< registrations with one of these flags fail with EINVAL
  Open open;
  std::vector<std::string> released;  ///< in order
  std::vector<std::string> opened;    ///< devices
  std::vector<int> access_tried;
  int cq_entries = 0;
  std::uint32_t srq_entries = 0;
  int receives = 0;
  int receives_with_data = 0;
  int receives_unmarked = 0;
  int post_calls = 0;
  int events_taken = 0;
  int events_acknowledged = 0;
  int async_flags = 0;  ///< of the last closed context

  void report(ibv_event_type type, int port = 1) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = port;
    send(event);
  }
  void report_queue_pair(ibv_event_type type, ibv_qp* qp) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = qp;
    send(event);
  }

  ibv_device** get_device_list(int* count) override {
    if (fails("get_device_list")) return nullptr;
    ++open.lists;
    list_.clear();
    for (ScriptedDevice& device : devices) list_.push_back(&device.handle);
    list_.push_back(nullptr);
    *count = static_cast<int>(devices.size());
    return list_.data();
  }
  void free_device_list(ibv_device**) override { --open.lists; }
  const char* get_device_name(ibv_device* device) override { return of(device).name.c_str(); }
  ibv_context* open_device(ibv_device* device) override {
    if (fails("open_device") || fails("open_device " + of(device).name)) return nullptr;
    ++open.contexts;
    opened.push_back(of(device).name);
    auto* context = new Context;
    context->device = &of(device);
    EXPECT_EQ(pipe2(context->pipe, O_CLOEXEC), 0);
    context->handle.async_fd = context->pipe[0];
    last_ = context;
    return &context->handle;
  }
  int close_device(ibv_context* handle) override {
    --open.contexts;
    released.push_back("context");
    Context* context = of(handle);
    async_flags = fcntl(context->pipe[0], F_GETFL);
    close(context->pipe[0]);
    close(context->pipe[1]);
    delete context;
    return 0;
  }
  int query_device(ibv_context* context, ibv_device_attr* attributes) override {
    if (fails("query_device")) return errno;
    *attributes = of(context)->device->attributes;
    attributes->phys_port_cnt = static_cast<std::uint8_t>(of(context)->device->ports.size());
    return 0;
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override {
    if (fails("query_port")) return errno;
    const ScriptedPort& scripted = of(context)->device->ports.at(port - 1u);
    *attributes = scripted.attributes;
    attributes->gid_tbl_len = static_cast<int>(scripted.gids.size());
    attributes->pkey_tbl_len = static_cast<std::uint16_t>(scripted.pkeys.size());
    return 0;
  }
  int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) override {
    if (fails("query_pkey")) return -1;
    *pkey = htons(of(context)->device->ports.at(port - 1u).pkeys.at(static_cast<unsigned>(index)));
    return 0;
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* entry) override {
    if (fails("query_gid_ex")) return errno;
    *entry = of(context)->device->ports.at(port - 1).gids.at(index);
    entry->gid_index = index;
    const ibv_gid empty{};
    return std::memcmp(entry->gid.raw, empty.raw, sizeof(empty.raw)) == 0 ? ENODATA : 0;
  }
  int get_async_event(ibv_context* context, ibv_async_event* event) override {
    if (read(context->async_fd, event, sizeof(*event)) != ssize_t{sizeof(*event)}) return -1;
    ++events_taken;
    return 0;
  }
  void ack_async_event(ibv_async_event*) override { ++events_acknowledged; }

  ibv_pd* alloc_pd(ibv_context* context) override {
    if (fails("alloc_pd")) return nullptr;
    ++open.pds;
    auto* pd = new ibv_pd{};
    pd->context = context;
    return pd;
  }
  int dealloc_pd(ibv_pd* pd) override {
    --open.pds;
    released.push_back("pd");
    delete pd;
    return 0;
  }
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    access_tried.push_back(access);
    if (fails("reg_mr")) return nullptr;
    if ((access & refused_access) != 0) {
      errno = EINVAL;
      return nullptr;
    }
    ++open.mrs;
    auto* mr = new ibv_mr{};
    mr->pd = pd;
    mr->addr = address;
    mr->length = bytes;
    return mr;
  }
  ibv_mr* reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) override {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  int dereg_mr(ibv_mr* mr) override {
    --open.mrs;
    delete mr;
    return 0;
  }
  ibv_cq* create_cq(ibv_context* context, int entries) override {
    if (fails("create_cq")) return nullptr;
    ++open.cqs;
    cq_entries = entries;
    auto* cq = new ibv_cq{};
    cq->context = context;
    return cq;
  }
  int destroy_cq(ibv_cq* cq) override {
    --open.cqs;
    released.push_back("cq");
    delete cq;
    return fails("destroy_cq") ? errno : 0;
  }
  int poll_cq(ibv_cq*, int, ibv_wc*) override { return 0; }
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) override {
    if (fails("create_srq")) return nullptr;
    ++open.srqs;
    srq_entries = attributes->attr.max_wr;
    auto* srq = new ibv_srq{};
    srq->context = pd->context;
    return srq;
  }
  int destroy_srq(ibv_srq* srq) override {
    --open.srqs;
    released.push_back("srq");
    delete srq;
    return 0;
  }
  int post_srq_recv(ibv_srq*, ibv_recv_wr* first, ibv_recv_wr** bad) override {
    if (fails("post_srq_recv")) {
      *bad = first;
      return errno;
    }
    ++post_calls;
    for (; first != nullptr; first = first->next) {
      ++receives;
      if (first->num_sge != 0) ++receives_with_data;
      if (first->wr_id != kReceiveId) ++receives_unmarked;
    }
    return 0;
  }
  ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr*) override { return nullptr; }
  int modify_qp(ibv_qp*, ibv_qp_attr*, int) override { return EOPNOTSUPP; }
  int destroy_qp(ibv_qp*) override { return EOPNOTSUPP; }
  int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) override { return EOPNOTSUPP; }

 private:
  struct Context {
    ibv_context handle{};  // first: the handle is the context
    ScriptedDevice* device = nullptr;
    int pipe[2] = {-1, -1};
  };
  static Context* of(ibv_context* handle) { return reinterpret_cast<Context*>(handle); }
  ScriptedDevice& of(ibv_device* handle) {
    for (ScriptedDevice& device : devices) {
      if (&device.handle == handle) return device;
    }
    ADD_FAILURE() << "a device that this library never gave";
    return devices.front();
  }
  bool fails(const std::string& call) {
    const auto found = failing.find(call);
    if (found == failing.end()) return false;
    errno = found->second;
    return true;
  }
  void send(const ibv_async_event& event) {
    ASSERT_NE(last_, nullptr);
    ASSERT_EQ(write(last_->pipe[1], &event, sizeof(event)), ssize_t{sizeof(event)});
  }

  std::vector<ibv_device*> list_;
  Context* last_ = nullptr;
};

}  // namespace unisono::verbs
