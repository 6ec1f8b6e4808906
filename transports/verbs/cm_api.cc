// librdmacm, found by dlopen. See cm_api.h.
#include "transports/verbs/cm_api.h"

#include <dlfcn.h>

#include <string>

#include "transports/verbs/library_functions.h"

namespace unisono::verbs {
namespace {

constexpr const char* kLibrary = "librdmacm.so.1";

struct Functions {
  decltype(&::rdma_create_event_channel) create_event_channel = nullptr;
  decltype(&::rdma_destroy_event_channel) destroy_event_channel = nullptr;
  decltype(&::rdma_get_cm_event) get_cm_event = nullptr;
  decltype(&::rdma_ack_cm_event) ack_cm_event = nullptr;
  decltype(&::rdma_event_str) event_str = nullptr;
  decltype(&::rdma_create_id) create_id = nullptr;
  decltype(&::rdma_destroy_id) destroy_id = nullptr;
  decltype(&::rdma_set_option) set_option = nullptr;
  decltype(&::rdma_resolve_addr) resolve_addr = nullptr;
  decltype(&::rdma_resolve_route) resolve_route = nullptr;
};

/// The names of functions that are not there.
std::string fill(void* library, Functions* f) {
  std::string missing;
  require(library, "rdma_create_event_channel", &f->create_event_channel, &missing);
  require(library, "rdma_destroy_event_channel", &f->destroy_event_channel, &missing);
  require(library, "rdma_get_cm_event", &f->get_cm_event, &missing);
  require(library, "rdma_ack_cm_event", &f->ack_cm_event, &missing);
  require(library, "rdma_event_str", &f->event_str, &missing);
  require(library, "rdma_create_id", &f->create_id, &missing);
  require(library, "rdma_destroy_id", &f->destroy_id, &missing);
  require(library, "rdma_set_option", &f->set_option, &missing);
  require(library, "rdma_resolve_addr", &f->resolve_addr, &missing);
  require(library, "rdma_resolve_route", &f->resolve_route, &missing);
  return missing;
}

class Library final : public CmApi {
 public:
  explicit Library(const Functions& functions) : f_(functions) {}

  rdma_event_channel* create_event_channel() override { return f_.create_event_channel(); }
  void destroy_event_channel(rdma_event_channel* channel) override {
    f_.destroy_event_channel(channel);
  }
  int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) override {
    return f_.get_cm_event(channel, event);
  }
  int ack_cm_event(rdma_cm_event* event) override { return f_.ack_cm_event(event); }
  const char* event_str(rdma_cm_event_type type) override { return f_.event_str(type); }

  int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                rdma_port_space space) override {
    return f_.create_id(channel, id, context, space);
  }
  int destroy_id(rdma_cm_id* id) override { return f_.destroy_id(id); }
  int set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes) override {
    return f_.set_option(id, level, name, value, bytes);
  }
  int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) override {
    return f_.resolve_addr(id, source, target, timeout_ms);
  }
  int resolve_route(rdma_cm_id* id, int timeout_ms) override {
    return f_.resolve_route(id, timeout_ms);
  }

 private:
  const Functions f_;
};

}  // namespace

Result<std::shared_ptr<CmApi>> load_cm_library_file(const char* file) {
  // Never closed, as libibverbs, which it uses.
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();
    return Status(ErrorCode::kUnsupported,
                  "librdmacm cannot be loaded (" + std::string(words ? words : file) +
                      "), which UNISONO_VERBS_CONNECT=cm needs: install it (Debian, Ubuntu: "
                      "librdmacm1; Fedora, RHEL: librdmacm), or use 'exchange'");
  }
  Functions functions;
  if (const std::string missing = fill(library, &functions); !missing.empty()) {
    return Status(ErrorCode::kUnsupported,
                  std::string(file) + " lacks " + missing +
                      ": it is no librdmacm; install rdma-core's (Debian, Ubuntu: librdmacm1)");
  }
  return std::shared_ptr<CmApi>(std::make_shared<Library>(functions));
}

Result<std::shared_ptr<CmApi>> load_cm_library() {
  static const Result<std::shared_ptr<CmApi>> library = load_cm_library_file(kLibrary);
  return library;
}

}  // namespace unisono::verbs
