// libibverbs, found by dlopen. One table of its functions is filled once and lives as long as the
// process; any thread may load it. No symbol of the library is needed to link this file: functions
// that the header has as macros or inline are spelled out here where they would name one.
#include "transports/verbs/verbs_api.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.h"
#include "transports/verbs/library_functions.h"

namespace unisono::verbs {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

struct Functions {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::ibv_query_pkey) query_pkey = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_srq) create_srq = nullptr;
  decltype(&::ibv_destroy_srq) destroy_srq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_fork_init) fork_init = nullptr;
  // Younger than the library's first version with this soname; null where it lacks them.
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;
};

/// The names of required functions that are not there.
std::string fill(void* library, Functions* f) {
  std::string missing;
  require(library, "ibv_get_device_list", &f->get_device_list, &missing);
  require(library, "ibv_free_device_list", &f->free_device_list, &missing);
  require(library, "ibv_get_device_name", &f->get_device_name, &missing);
  require(library, "ibv_open_device", &f->open_device, &missing);
  require(library, "ibv_close_device", &f->close_device, &missing);
  require(library, "ibv_query_device", &f->query_device, &missing);
  require(library, "ibv_query_port", &f->query_port, &missing);
  require(library, "ibv_query_pkey", &f->query_pkey, &missing);
  require(library, "ibv_get_async_event", &f->get_async_event, &missing);
  require(library, "ibv_ack_async_event", &f->ack_async_event, &missing);
  require(library, "ibv_alloc_pd", &f->alloc_pd, &missing);
  require(library, "ibv_dealloc_pd", &f->dealloc_pd, &missing);
  require(library, "ibv_reg_mr", &f->reg_mr, &missing);
  require(library, "ibv_dereg_mr", &f->dereg_mr, &missing);
  require(library, "ibv_create_cq", &f->create_cq, &missing);
  require(library, "ibv_destroy_cq", &f->destroy_cq, &missing);
  require(library, "ibv_create_srq", &f->create_srq, &missing);
  require(library, "ibv_destroy_srq", &f->destroy_srq, &missing);
  require(library, "ibv_create_qp", &f->create_qp, &missing);
  require(library, "ibv_modify_qp", &f->modify_qp, &missing);
  require(library, "ibv_destroy_qp", &f->destroy_qp, &missing);
  require(library, "ibv_fork_init", &f->fork_init, &missing);
  find(library, "ibv_reg_mr_iova2", &f->reg_mr_iova2);
  find(library, "_ibv_query_gid_ex", &f->query_gid_ex);
  find(library, "ibv_reg_dmabuf_mr", &f->reg_dmabuf_mr);
  return missing;
}

class Library final : public VerbsApi {
 public:
  explicit Library(const Functions& functions) : f_(functions) {}

  ibv_device** get_device_list(int* count) override { return f_.get_device_list(count); }
  void free_device_list(ibv_device** list) override { f_.free_device_list(list); }
  const char* get_device_name(ibv_device* device) override { return f_.get_device_name(device); }
  ibv_context* open_device(ibv_device* device) override { return f_.open_device(device); }
  int close_device(ibv_context* context) override { return f_.close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* attributes) override {
    return f_.query_device(context, attributes);
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override {
    // As the header's ___ibv_query_port does: the exported function fills the shorter, older form.
    std::memset(attributes, 0, sizeof(*attributes));
    if (verbs_context* extended = verbs_get_ctx_op(context, query_port); extended != nullptr) {
      return extended->query_port(context, port, attributes, sizeof(*attributes));
    }
    return f_.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
  }
  int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) override {
    return f_.query_pkey(context, port, index, pkey);
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* entry) override {
    if (f_.query_gid_ex == nullptr) return EOPNOTSUPP;
    return f_.query_gid_ex(context, port, index, entry, 0, sizeof(*entry));
  }
  int get_async_event(ibv_context* context, ibv_async_event* event) override {
    return f_.get_async_event(context, event);
  }
  void ack_async_event(ibv_async_event* event) override { f_.ack_async_event(event); }

  ibv_pd* alloc_pd(ibv_context* context) override { return f_.alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return f_.dealloc_pd(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    // Optional flags (relaxed ordering) are known to the younger function alone; to leave them out
    // for the older is what "optional" means.
    if ((access & IBV_ACCESS_OPTIONAL_RANGE) != 0 && f_.reg_mr_iova2 != nullptr) {
      return f_.reg_mr_iova2(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address),
                             static_cast<unsigned>(access));
    }
    return f_.reg_mr(pd, address, bytes, access & ~static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE));
  }
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                        int fd, int access) override {
    if (f_.reg_dmabuf_mr == nullptr) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    return f_.reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
  }
  int dereg_mr(ibv_mr* mr) override { return f_.dereg_mr(mr); }

  ibv_cq* create_cq(ibv_context* context, int entries) override {
    return f_.create_cq(context, entries, nullptr, nullptr, 0);
  }
  int destroy_cq(ibv_cq* cq) override { return f_.destroy_cq(cq); }
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override {
    return cq->context->ops.poll_cq(cq, entries, completions);
  }
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) override {
    return f_.create_srq(pd, attributes);
  }
  int destroy_srq(ibv_srq* srq) override { return f_.destroy_srq(srq); }
  int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) override {
    return srq->context->ops.post_srq_recv(srq, first, bad);
  }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) override {
    return f_.create_qp(pd, attributes);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) override {
    return f_.modify_qp(qp, attributes, mask);
  }
  int destroy_qp(ibv_qp* qp) override { return f_.destroy_qp(qp); }
  int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) override {
    return qp->context->ops.post_send(qp, first, bad);
  }

 private:
  const Functions f_;
};

/// Data loaders fork under a running trainer. Linux 5.12 copies pinned pages for the child at
/// fork(), and rdma-core 35 knows: there this call does nothing. Before, a write of the parent
/// after the fork moved the page away from under the device, which is silent corruption; so the
/// library is asked to keep registered pages out of children (a child that touches one is killed,
/// which is at least loud). It must precede the first registration of the process, hence here, and
/// is safe to repeat. RDMAV_FORK_SAFE in the environment has the same effect and is left to users.
void prepare_for_fork(const Functions& functions) {
  const int error = functions.fork_init();
  if (error == 0) return;
  log::warning(std::string("verbs: fork() is unsafe in this process while memory is registered "
                           "(ibv_fork_init: ") +
               std::strerror(error < 0 ? errno : error) +
               "): another library registered memory first and the kernel is older than 5.12; set "
               "RDMAV_FORK_SAFE=1 before the start, or do not fork");
}

}  // namespace

Result<std::shared_ptr<VerbsApi>> load_verbs_library_file(const char* file) {
  // Never closed: providers that it loads keep threads and handlers of their own.
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();
    return Status(ErrorCode::kUnsupported,
                  "libibverbs cannot be loaded (" + std::string(words ? words : file) +
                      "): install rdma-core's user libraries (Debian, Ubuntu: libibverbs1 and "
                      "ibverbs-providers; Fedora, RHEL: libibverbs)");
  }
  Functions functions;
  if (const std::string missing = fill(library, &functions); !missing.empty()) {
    return Status(ErrorCode::kUnsupported,
                  std::string(file) + " lacks " + missing +
                      ": it is too old or no libibverbs; install rdma-core 33 or newer (Debian, "
                      "Ubuntu: libibverbs1 and ibverbs-providers)");
  }
  prepare_for_fork(functions);
  return std::shared_ptr<VerbsApi>(std::make_shared<Library>(functions));
}

Result<std::shared_ptr<VerbsApi>> load_verbs_library() {
  static const Result<std::shared_ptr<VerbsApi>> library = load_verbs_library_file(kLibrary);
  return library;
}

}  // namespace unisono::verbs
