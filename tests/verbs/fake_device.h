// VerbsApi of one host of a fake fabric. Stateless but for its place: everything lies in the core.
// Thread rules as the library's: any thread, one object by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "tests/verbs/fake_core.h"

namespace unisono::verbs::fake {

class FakeDevice : public VerbsApi {
 public:
  FakeDevice(std::shared_ptr<Core> core, int host) : core_(std::move(core)), host_(host) {}

  ibv_device** get_device_list(int* count) override;
  void free_device_list(ibv_device** list) override;
  const char* get_device_name(ibv_device* device) override;
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  int query_device(ibv_context* context, ibv_device_attr* attributes) override;
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override;
  int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) override;
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* entry) override;
  int get_async_event(ibv_context* context, ibv_async_event* event) override;
  void ack_async_event(ibv_async_event* event) override;

  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override;
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                        int fd, int access) override;
  int dereg_mr(ibv_mr* mr) override;

  ibv_cq* create_cq(ibv_context* context, int entries) override;
  int destroy_cq(ibv_cq* cq) override;
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override;
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) override;
  int destroy_srq(ibv_srq* srq) override;
  int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) override;

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) override;
  int destroy_qp(ibv_qp* qp) override;
  int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) override;

 private:
  using Section = Core::Section;

  Host& host() { return core_->host(host_); }
  FakeCounters& counters() { return host().counters; }
  /// The errno for a call that makes something on `device`, or 0.
  int obstacle(FakeCall call, const Device& device);
  Region* add_region(Pd& pd, std::byte* memory, std::uint64_t first, std::size_t bytes, int access);
  int check_sizes(const Device& device, const ibv_qp_init_attr& attributes);
  int check_request(const Qp& qp, const ibv_send_wr& request);
  void enqueue(Qp& qp, const ibv_send_wr& request);
  int check_change(const Qp& qp, const ibv_qp_attr& asked, int mask);
  int check_values(const Qp& qp, const ibv_qp_attr& asked, int mask);
  int find_path(Qp& qp, const ibv_ah_attr& path);
  void adopt(Qp& qp, const ibv_qp_attr& asked, int mask);

  const std::shared_ptr<Core> core_;
  const int host_;
};

}  // namespace unisono::verbs::fake
