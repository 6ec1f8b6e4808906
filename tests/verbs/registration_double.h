// A device that registers memory and nothing else, with what tests want to know and to provoke; and
// a monitor whose changes the test makes. One thread, but the counts.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "transports/verbs/memory_monitor.h"
#include "transports/verbs/rail.h"

namespace unisono::verbs {

/// As many rails as asked for can be opened on it.
class RegistrationDouble final : public VerbsApi {
 public:
  struct Region {
    ibv_mr mr{};
    int access = 0;
    int serial = 0;  ///< grows with every registration
  };

  RegistrationDouble() {
    std::strcpy(device_.name, "double0");
    context_.device = &device_;
    context_.async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  ~RegistrationDouble() override { close(context_.async_fd); }

  std::list<Region> regions;         ///< alive
  int registered = 0;                ///< successful calls so far
  int dma_bufs = 0;                  ///< registrations by dma-buf that were asked for
  std::size_t bytes = 0;             ///< of those alive
  std::size_t bytes_max = SIZE_MAX;  ///< more: ENOMEM
  /// Asked before every registration: 0 or errno.
  std::function<int(const std::byte* begin, std::size_t bytes, int access)> verdict;

  const Region* find(std::uint32_t lkey) const {
    const auto found = std::find_if(regions.begin(), regions.end(),
                                    [&](const Region& region) { return region.mr.lkey == lkey; });
    return found == regions.end() ? nullptr : &*found;
  }

  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) override {
    int failed = verdict ? verdict(static_cast<std::byte*>(address), length, access) : 0;
    if (failed == 0 && bytes + length > bytes_max) failed = ENOMEM;
    if (failed != 0) {
      errno = failed;
      return nullptr;
    }
    Region& region = regions.emplace_back();
    region.serial = ++registered;
    region.access = access;
    region.mr.context = &context_;
    region.mr.pd = pd;
    region.mr.addr = address;
    region.mr.length = length;
    region.mr.lkey = static_cast<std::uint32_t>(2 * registered);
    region.mr.rkey = region.mr.lkey + 1;
    bytes += length;
    return &region.mr;
  }
  int dereg_mr(ibv_mr* mr) override {
    bytes -= mr->length;
    regions.remove_if([&](const Region& region) { return &region.mr == mr; });
    return 0;
  }

  ibv_device** get_device_list(int* count) override {
    *count = 1;
    return list_;
  }
  void free_device_list(ibv_device**) override {}
  const char* get_device_name(ibv_device* device) override { return device->name; }
  ibv_context* open_device(ibv_device*) override { return &context_; }
  int close_device(ibv_context*) override { return 0; }
  int query_device(ibv_context*, ibv_device_attr*) override { return ENOSYS; }
  int query_port(ibv_context*, std::uint8_t, ibv_port_attr*) override { return ENOSYS; }
  int query_pkey(ibv_context*, std::uint8_t, int, __be16*) override { return ENOSYS; }
  int query_gid_ex(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*) override {
    return ENOSYS;
  }
  int get_async_event(ibv_context*, ibv_async_event*) override {
    errno = EAGAIN;
    return -1;
  }
  void ack_async_event(ibv_async_event*) override {}
  ibv_pd* alloc_pd(ibv_context*) override { return &pd_; }
  int dealloc_pd(ibv_pd*) override { return 0; }
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t, std::size_t length, std::uint64_t iova, int,
                        int access) override {
    ++dma_bufs;
    return reg_mr(pd, reinterpret_cast<void*>(iova), length, access);
  }
  ibv_cq* create_cq(ibv_context*, int) override { return &cq_; }
  int destroy_cq(ibv_cq*) override { return 0; }
  int poll_cq(ibv_cq*, int, ibv_wc*) override { return 0; }
  ibv_srq* create_srq(ibv_pd*, ibv_srq_init_attr*) override { return &srq_; }
  int destroy_srq(ibv_srq*) override { return 0; }
  int post_srq_recv(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) override { return 0; }
  ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr*) override { return nullptr; }
  int modify_qp(ibv_qp*, ibv_qp_attr*, int) override { return ENOSYS; }
  int destroy_qp(ibv_qp*) override { return ENOSYS; }
  int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) override { return ENOSYS; }

 private:
  ibv_device device_{};
  ibv_device* list_[2] = {&device_, nullptr};
  ibv_context context_{};
  ibv_pd pd_{};
  ibv_cq cq_{};
  ibv_srq srq_{};
};

/// Ports that RegistrationDouble has.
inline std::vector<std::unique_ptr<Rail>> open_rails(const std::shared_ptr<VerbsApi>& api,
                                                     int count) {
  std::vector<std::unique_ptr<Rail>> rails;
  for (int i = 0; i < count; ++i) {
    PortSurvey port;
    port.shown.device = "double0";
    port.shown.port = i + 1;
    port.shown.usable = true;
    port.port = static_cast<std::uint8_t>(i + 1);
    port.cq_entries_max = port.srq_entries_max = port.qp_entries_max = 1024;
    Result<std::unique_ptr<Rail>> rail = Rail::open(api, port, VerbsOptions{}, 1);
    if (rail) rails.push_back(std::move(*rail));
  }
  return rails;
}

class ScriptedMonitor final : public MemoryMonitor {
 public:
  using Pages = std::span<const std::byte>;
  struct Script {
    std::vector<Pages> watched;
    std::vector<Pages> changed;
    std::function<bool(Pages)> may_watch;  ///< none: everything
  };
  explicit ScriptedMonitor(Script* script) : script_(*script) {}

  Status watch(Pages pages) override {
    if (script_.may_watch && !script_.may_watch(pages)) {
      return Status(ErrorCode::kUnsupported, "the script says no");
    }
    script_.watched.push_back(pages);
    return Status();
  }
  void forget(Pages pages) override {
    const auto found =
        std::find_if(script_.watched.begin(), script_.watched.end(), [&](const Pages& watched) {
          return watched.data() == pages.data() && watched.size() == pages.size();
        });
    if (found != script_.watched.end()) script_.watched.erase(found);
  }
  bool has_noted() const override { return has_changed(); }
  bool has_changed() const override { return !script_.changed.empty(); }
  std::vector<Pages> take_changed() override { return std::exchange(script_.changed, {}); }

 private:
  Script& script_;
};

}  // namespace unisono::verbs
