// The functions of librdmacm that unisono calls, behind virtual ones, as VerbsApi has those of
// libibverbs: found by dlopen when they are wanted, replaceable in tests. Names, arguments, results
// and thread rules are the library's own, without its prefix.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <memory>

#include "base/result.h"

namespace unisono::verbs {

class CmApi {
 public:
  virtual ~CmApi() = default;

  virtual rdma_event_channel* create_event_channel() = 0;
  virtual void destroy_event_channel(rdma_event_channel* channel) = 0;
  virtual int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) = 0;
  virtual int ack_cm_event(rdma_cm_event* event) = 0;
  virtual const char* event_str(rdma_cm_event_type type) = 0;

  virtual int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                        rdma_port_space space) = 0;
  virtual int destroy_id(rdma_cm_id* id) = 0;
  virtual int set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes) = 0;
  virtual int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) = 0;
  virtual int resolve_route(rdma_cm_id* id, int timeout_ms) = 0;
};

/// The library of this machine, loaded once per process and never unloaded. kUnsupported says what
/// is missing and which package has it.
Result<std::shared_ptr<CmApi>> load_cm_library();
/// The same from a file of another name, each time anew: how tests make the library missing, or one
/// that lacks functions, on a machine that has it.
Result<std::shared_ptr<CmApi>> load_cm_library_file(const char* file);

}  // namespace unisono::verbs
