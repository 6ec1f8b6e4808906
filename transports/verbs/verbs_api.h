// The functions of libibverbs that unisono calls, behind virtual ones: found by dlopen at run time,
// so that one binary runs with and without rdma-core, and replaceable by a fake device in tests.
// Names, arguments, results and thread rules are the library's own, without its prefix.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"

namespace unisono::verbs {

class VerbsApi {
 public:
  virtual ~VerbsApi() = default;

  virtual ibv_device** get_device_list(int* count) = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  virtual const char* get_device_name(ibv_device* device) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr* attributes) = 0;
  virtual int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = 0;
  virtual int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) = 0;
  virtual int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                           ibv_gid_entry* entry) = 0;
  virtual int get_async_event(ibv_context* context, ibv_async_event* event) = 0;
  virtual void ack_async_event(ibv_async_event* event) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) = 0;
  /// GPU memory; null with errno EOPNOTSUPP where library or device have none.
  virtual ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                                std::uint64_t iova, int fd, int access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  virtual ibv_cq* create_cq(ibv_context* context, int entries) = 0;
  virtual int destroy_cq(ibv_cq* cq) = 0;
  virtual int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) = 0;
  virtual ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) = 0;
  virtual int destroy_srq(ibv_srq* srq) = 0;
  virtual int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) = 0;

  virtual ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) = 0;
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;
  virtual int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) = 0;
};

/// The library of this machine, loaded once per process and never unloaded. kUnsupported says what
/// is missing and which package has it.
Result<std::shared_ptr<VerbsApi>> load_verbs_library();
/// The same from a file of another name, each time anew: how tests make the library missing, or one
/// that lacks functions, on a machine that has it.
Result<std::shared_ptr<VerbsApi>> load_verbs_library_file(const char* file);

}  // namespace unisono::verbs
