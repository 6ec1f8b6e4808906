// Completion queues, shared receive queues and the posting of work requests.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/verbs/fake_device.h"

namespace unisono::verbs::fake {

ibv_cq* FakeDevice::create_cq(ibv_context* context, int entries) {
  Section section(*core_);
  auto* open = static_cast<Context*>(context);
  const int entries_max = open->owner->options.cq_entries_max;
  int error = obstacle(FakeCall::kCreateCq, *open->owner);
  if (error == 0 && (entries < 1 || entries > entries_max)) {
    error = core_->refuse(
        EINVAL, *open->owner,
        "create_cq: " + std::to_string(entries) + " entries, limit " + std::to_string(entries_max));
  }
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  auto* cq = new Cq{};
  cq->context = context;
  cq->cqe = entries;
  cq->ring.resize(static_cast<std::size_t>(entries));
  ++open->users;
  ++counters().cqs;
  return cq;
}

int FakeDevice::destroy_cq(ibv_cq* cq) {
  auto* old = static_cast<Cq*>(cq);
  auto* open = static_cast<Context*>(cq->context);
  Section section(*core_);
  if (old->users > 0) return core_->refuse(EBUSY, *open->owner, "destroy_cq: a queue pair uses it");
  core_->settle_events(section, *open, old);
  --open->users;
  --counters().cqs;
  delete old;
  return 0;
}

int FakeDevice::poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  Section section(*core_);
  auto& from = *static_cast<Cq*>(cq);
  if (core_->failure(host_, FakeCall::kPollCq) != 0) return -1;
  int taken = 0;
  for (; taken < entries && from.count > 0; ++taken) {
    Entry& entry = from.ring[from.first];
    completions[taken] = entry.completion;
    if (entry.of_request) {
      // Slots of the send queue are free again up to the request that this one is about.
      const auto found = core_->by_number().find(entry.completion.qp_num);
      if (found != core_->by_number().end()) {
        found->second->freed = std::max(found->second->freed, entry.sequence + 1);
      }
    }
    from.first = (from.first + 1) % from.ring.size();
    --from.count;
    const Shown shown(core_->options().exact_order);
    order_acquire(&entry);
  }
  return taken;
}

ibv_srq* FakeDevice::create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  Section section(*core_);
  auto* open = static_cast<Context*>(pd->context);
  const FakeDeviceOptions& options = open->owner->options;
  int error = obstacle(FakeCall::kCreateSrq, *open->owner);
  const ibv_srq_attr& asked = attributes->attr;
  if (error == 0 &&
      (asked.max_wr < 1 || asked.max_wr > static_cast<std::uint32_t>(options.srq_entries_max) ||
       asked.max_sge > static_cast<std::uint32_t>(options.sges_max))) {
    error = core_->refuse(EINVAL, *open->owner, "create_srq: beyond the device's limits");
  }
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  auto* srq = new Srq{};
  srq->context = pd->context;
  srq->srq_context = attributes->srq_context;
  srq->pd = pd;
  srq->entries_max = asked.max_wr;
  srq->sges_max = static_cast<int>(asked.max_sge);
  ++open->users;
  ++static_cast<Pd*>(pd)->users;
  ++counters().srqs;
  return srq;
}

int FakeDevice::destroy_srq(ibv_srq* srq) {
  auto* old = static_cast<Srq*>(srq);
  auto* open = static_cast<Context*>(srq->context);
  Section section(*core_);
  if (old->users > 0)
    return core_->refuse(EBUSY, *open->owner, "destroy_srq: a queue pair uses it");
  core_->settle_events(section, *open, old);
  --open->users;
  --static_cast<Pd*>(srq->pd)->users;
  --counters().srqs;
  delete old;
  return 0;
}

int FakeDevice::post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  Section section(*core_);
  auto& queue = *static_cast<Srq*>(srq);
  const Device& device = *static_cast<Context*>(srq->context)->owner;
  for (ibv_recv_wr* request = first; request != nullptr; request = request->next) {
    int error = obstacle(FakeCall::kPostSrqRecv, device);
    if (error == 0 && request->num_sge > queue.sges_max) error = EINVAL;
    if (error == 0 && queue.receives.size() == queue.entries_max) {
      error = core_->refuse(
          ENOMEM, device,
          "post_srq_recv: " + std::to_string(queue.entries_max) + " receives are posted already");
    }
    if (error != 0) {
      *bad = request;
      return error;
    }
    queue.receives.push_back({request->wr_id});
  }
  return 0;
}

int FakeDevice::check_request(const Qp& qp, const ibv_send_wr& request) {
  const Device& device = *qp.owner;
  if (const int error = obstacle(FakeCall::kPostSend, device)) return error;
  if (qp.now != IBV_QPS_RTS && qp.now != IBV_QPS_ERR) {
    return core_->refuse(EINVAL, device,
                         "post_send: queue pair in state " + std::to_string(qp.now));
  }
  if (qp.posted - qp.freed >= qp.cap.max_send_wr) {
    ++counters().overflows;
    return core_->refuse(ENOMEM, device,
                         "post_send: no completion polled covers any of the " +
                             std::to_string(qp.cap.max_send_wr) + " requests in the send queue");
  }
  const bool known = request.opcode == IBV_WR_RDMA_WRITE ||
                     request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                     request.opcode == IBV_WR_RDMA_READ;
  if (!known) return core_->refuse(EINVAL, device, "post_send: an opcode that the fake lacks");
  if (request.num_sge < 0 || static_cast<unsigned>(request.num_sge) > qp.cap.max_send_sge)
    return core_->refuse(EINVAL, device, "post_send: too many pieces");
  if ((request.send_flags & IBV_SEND_INLINE) == 0) return 0;
  std::uint64_t bytes = 0;
  for (int i = 0; i < request.num_sge; ++i) bytes += request.sg_list[i].length;
  if (request.opcode == IBV_WR_RDMA_READ || bytes > qp.cap.max_inline_data)
    return core_->refuse(EINVAL, device, "post_send: not to be had inline");
  return 0;
}

void FakeDevice::enqueue(Qp& qp, const ibv_send_wr& request) {
  auto work = std::make_unique<Work>();
  work->id = request.wr_id;
  work->sequence = qp.posted++;
  work->opcode = request.opcode;
  work->signalled = qp.signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  work->fenced = (request.send_flags & IBV_SEND_FENCE) != 0;
  work->is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  work->immediate = request.imm_data;
  work->remote = request.wr.rdma.remote_addr;
  work->rkey = request.wr.rdma.rkey;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    work->bytes += sge.length;
    if (!work->is_inline) {
      work->sges.push_back(sge);
    } else if (sge.length > 0) {
      // Shown, so that the sanitizer checks what the caller may know of the payload.
      const std::size_t before = work->payload.size();
      work->payload.resize(before + sge.length);
      const Shown shown(core_->options().exact_order);
      std::memcpy(work->payload.data() + before, reinterpret_cast<const void*>(sge.addr),
                  sge.length);
    }
  }
  if (work->is_inline) ++counters().inlined;
  ++counters().posted[work->opcode];
  qp.works.push_back(std::move(work));
  core_->activate(qp);
}

int FakeDevice::post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  auto& to = *static_cast<Qp*>(qp);
  Section section(*core_);
  for (ibv_send_wr* request = first; request != nullptr; request = request->next) {
    if (const int error = check_request(to, *request)) {
      *bad = request;
      return error;
    }
    enqueue(to, *request);
    // Behind the copy of an inline payload, which is the device's from here on.
    const Shown shown(core_->options().exact_order);
    order_release(&to);
  }
  return 0;
}

}  // namespace unisono::verbs::fake
