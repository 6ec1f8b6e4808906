// Pairs of queue pairs and work requests for the feature probe; see link.h.
#include "tests/vm/link.h"

#include <sched.h>

#include <stdexcept>

namespace unisono::vm {
namespace {

constexpr int kCompletions = 256;

End make_end(Device& device, bool shared, const LinkOptions& options, ibv_srq* srq) {
  End end{.device = &device, .memory = std::make_unique<Memory>(kLinkBytes, shared)};
  end.region = register_memory(device, end.memory->data(), kLinkBytes);
  if (options.events) end.channel.reset(ibv_create_comp_channel(device.context.get()));
  end.cq.reset(ibv_create_cq(device.context.get(), kCompletions, nullptr, end.channel.get(), 0));
  if (!end.region || !end.cq) throw std::runtime_error("no memory region or no completion queue");
  end.queue_pair =
      make_queue_pair(device, end.cq.get(), {.inline_bytes = options.inline_bytes}, srq);
  if (!end.queue_pair) throw std::runtime_error("no queue pair");
  return end;
}

}  // namespace

Link::Link(Device& source_device, Device& target_device, const LinkOptions& options)
    : source(make_end(source_device, false, options, nullptr)),
      target(make_end(target_device, true, options, options.shared_receives)) {
  const Address here = address_of(source_device, source.queue_pair.get());
  const Address there = address_of(target_device, target.queue_pair.get());
  if (connect(source_device, source.queue_pair.get(), there, options.retries) != 0 ||
      connect(target_device, target.queue_pair.get(), here, options.retries) != 0) {
    throw std::runtime_error("queue pairs do not connect");
  }
}

Work Work::of(ibv_wr_opcode opcode, const ibv_sge& local) {
  Work work;
  work.piece = local;
  work.request.opcode = opcode;
  work.request.num_sge = local.length > 0 ? 1 : 0;
  work.request.send_flags = IBV_SEND_SIGNALED;
  return work;
}

Work& Work::to(const End& target, std::size_t offset) {
  request.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(target.at(offset));
  request.wr.rdma.rkey = target.region->rkey;
  return *this;
}

Work& Work::with(unsigned flags) {
  request.send_flags = flags;
  return *this;
}

Work& Work::immediate(std::uint32_t value) {
  request.imm_data = value;
  return *this;
}

int post(const End& end, Work work) {
  ibv_send_wr* bad = nullptr;
  if (work.request.sg_list == nullptr) work.request.sg_list = &work.piece;
  return ibv_post_send(end.queue_pair.get(), &work.request, &bad);
}

int post_receive(const End& end, std::uint64_t id, std::size_t offset, std::uint32_t bytes) {
  ibv_sge piece = end.piece(offset, bytes);
  ibv_recv_wr request{.wr_id = id, .sg_list = &piece, .num_sge = bytes > 0 ? 1 : 0};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(end.queue_pair.get(), &request, &bad);
}

int post_receive(ibv_srq* srq, const End& end, std::uint64_t id, std::size_t offset,
                 std::uint32_t bytes) {
  ibv_sge piece = end.piece(offset, bytes);
  ibv_recv_wr request{.wr_id = id, .sg_list = &piece, .num_sge = bytes > 0 ? 1 : 0};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq, &request, &bad);
}

ibv_wc next_completion(ibv_cq* cq, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  ibv_wc completion{};
  while (std::chrono::steady_clock::now() < deadline) {
    if (ibv_poll_cq(cq, 1, &completion) == 1) return completion;
    sched_yield();
  }
  completion = {};
  completion.wr_id = ~std::uint64_t{0};
  completion.status = IBV_WC_GENERAL_ERR;
  return completion;
}

}  // namespace unisono::vm
