// The fake's device thread: in each turn one queue pair, chosen at random, gets one step further.
// Requests of a queue pair begin and complete in order; reads may overlap each other and the writes
// behind them, as on real devices, unless fenced.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/verbs/fake_core.h"

namespace unisono::verbs::fake {
namespace {

/// Requests of one queue pair that were begun and not retired; enough for reads to be overtaken.
constexpr std::size_t kBegunMax = 64;
/// Turns without work before the thread sleeps: a post soon after is cheaper than a wake-up.
constexpr int kIdleTurnsMax = 50;

ibv_wc_opcode completed_as(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
}

}  // namespace

void Core::run() {
  const Hidden hidden(options_.exact_order);
  std::unique_lock lock(mutex_);
  int idle_turns = 0;
  while (!stopping_) {
    ++turn_;
    wake_.wait(lock, [this] { return fences_ == 0; });
    Time next = Time::max();
    if (Qp* qp = choose_qp(std::chrono::steady_clock::now(), &next)) {
      idle_turns = 0;
      step(*qp, lock);
      const bool pause = below(8) == 0;
      if (!pause && options_.turn_delay.count() == 0) continue;
    } else if (++idle_turns > kIdleTurnsMax) {
      changed();
      if (next == Time::max()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, next);
      }
      continue;
    }
    lock.unlock();
    if (options_.turn_delay.count() > 0) std::this_thread::sleep_for(options_.turn_delay);
    std::this_thread::yield();
    lock.lock();
  }
}

bool Core::is_runnable(const Qp& qp, Time now, Time* next) const {
  const Host& owner = *hosts_[static_cast<std::size_t>(qp.owner->host)];
  if (owner.held || qp.owner->broken) return false;
  if (qp.not_before_turn > turn_) {
    *next = now;
    return false;
  }
  if (qp.now != IBV_QPS_ERR && qp.not_before > now) {
    *next = std::min(*next, qp.not_before);
    return false;
  }
  return true;
}

Qp* Core::choose_qp(Time now, Time* next) {
  const std::size_t count = active_.size();
  if (count == 0) return nullptr;
  const std::size_t start = below(count);
  for (std::size_t i = 0; i < count; ++i) {
    Qp* qp = active_[(start + i) % count];
    if (is_runnable(*qp, now, next)) return qp;
  }
  return nullptr;
}

bool Core::is_idle() {
  return std::none_of(active_.begin(), active_.end(), [this](const Qp* qp) {
    const bool stuck = qp->awaits_receive && qp->attributes.rnr_retry == 7;
    return !stuck && !qp->owner->broken && !host(*qp->owner).held;
  });
}

void Core::activate(Qp& qp) {
  if (qp.active) return;
  qp.active = true;
  qp.not_before_turn = turn_ + 1 + below(static_cast<std::uint64_t>(options_.late_turns_max) + 1);
  active_.push_back(&qp);
  wake();
}

void Core::step(Qp& qp, std::unique_lock<std::mutex>& lock) {
  if (qp.now == IBV_QPS_ERR) {
    flush(qp);
  } else if (Qp* peer = reach(qp)) {
    qp.tries = 0;
    Work* work = choose_work(qp);
    if (work->done) {
      retire(qp);
    } else {
      advance(qp, *work, *peer, lock);
    }
  } else {
    retry(qp);
  }
  if (qp.works.empty()) deactivate(qp);
}

void Core::deactivate(Qp& qp) {
  if (!std::exchange(qp.active, false)) return;
  active_.erase(std::find(active_.begin(), active_.end(), &qp));
  if (active_.empty()) changed();
}

bool Core::may_begin(const Qp& qp) const {
  if (qp.failing || qp.begun == qp.works.size() || qp.begun >= kBegunMax) return false;
  int reads = 0;
  int writes = 0;
  for (std::size_t i = 0; i < qp.begun; ++i) {
    if (!qp.works[i]->done) ++(qp.works[i]->is_read() ? reads : writes);
  }
  const Work& next = *qp.works[qp.begun];
  if (writes > 0) return false;
  if (next.is_read()) return reads < std::max<int>(1, qp.attributes.max_rd_atomic);
  return reads == 0 || !next.fenced;
}

/// One that has begun, or the next one; done at once where it must not be carried out.
Work* Core::choose_work(Qp& qp) {
  std::vector<Work*> choices;
  for (std::size_t i = 0; i < qp.begun && qp.works[i]->status == IBV_WC_SUCCESS; ++i) {
    if (!qp.works[i]->done) choices.push_back(qp.works[i].get());
  }
  const bool can_begin = may_begin(qp);
  if (can_begin && below(choices.size() + 1) == choices.size()) {
    Work* work = qp.works[qp.begun++].get();
    begin(qp, *work);
    return work;
  }
  return choices[below(choices.size())];
}

void Core::begin(Qp& qp, Work& work) {
  {
    const Shown shown(options_.exact_order);
    order_acquire(&qp);
  }
  ibv_wc_status status = check_local(qp, work);
  if (qp.owner->next_status) {
    status = *qp.owner->next_status;
    qp.owner->next_status.reset();
  }
  if (status == IBV_WC_SUCCESS) {
    cut(work);
    tamper(*qp.owner, work);
  } else {
    fail(qp, work, status);
  }
}

void Core::advance(Qp& qp, Work& work, Qp& peer, std::unique_lock<std::mutex>& lock) {
  const ibv_wc_status status = check_remote(qp, work, peer);
  if (status != IBV_WC_SUCCESS) {
    work.refused = true;
    fail(qp, work, status);
    return retire(qp);
  }
  if (!work.pieces.empty()) {
    Region* remote = find_remote(work, peer);
    if (!lay_out(qp, work, work.pieces.back(), remote)) {
      fail(qp, work, IBV_WC_LOC_PROT_ERR);
      return retire(qp);
    }
    move(qp, peer, work, remote, lock);
    // Nobody changed or destroyed either queue pair meanwhile: that waits for the move's end.
    work.pieces.pop_back();
  }
  if (work.pieces.empty()) finish(qp, work, peer);
}

void Core::finish(Qp& qp, Work& work, Qp& peer) {
  if (work.has_immediate()) {
    auto* srq = static_cast<Srq*>(peer.srq);
    if (srq == nullptr || srq->receives.empty()) return retry_receive(qp, work);
    deliver_receive(qp, work, peer);
  }
  qp.rnr_tries = 0;
  qp.awaits_receive = false;
  work.done = true;
  host(*qp.owner).counters.bytes[work.opcode] += work.bytes;
  retire(qp);
}

void Core::deliver_receive(Qp& qp, const Work& work, Qp& peer) {
  auto& receives = static_cast<Srq*>(peer.srq)->receives;
  Entry entry;
  entry.completion.wr_id = receives.front().id;
  entry.completion.status = IBV_WC_SUCCESS;
  entry.completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  entry.completion.byte_len = static_cast<std::uint32_t>(work.bytes);
  entry.completion.imm_data = work.immediate;
  entry.completion.qp_num = peer.qp_num;
  entry.completion.src_qp = qp.qp_num;
  entry.completion.wc_flags = IBV_WC_WITH_IMM;
  receives.pop_front();
  ++host(*peer.owner).counters.received;
  push(peer.receives(), entry);
}

void Core::retry(Qp& qp) {
  if (qp.tries++ < qp.attributes.retry_cnt) {
    qp.not_before = std::chrono::steady_clock::now() + options_.retry_wait;
    return;
  }
  const auto lost =
      std::find_if(qp.works.begin(), qp.works.end(), [](const auto& work) { return !work->done; });
  const auto place = static_cast<std::size_t>(lost - qp.works.begin());
  if (place == qp.begun) {
    ++qp.begun;
    begin(qp, **lost);
  }
  if (!(*lost)->done) fail(qp, **lost, IBV_WC_RETRY_EXC_ERR);
  retire(qp);
}

void Core::retry_receive(Qp& qp, Work& work) {
  const int allowed = qp.attributes.rnr_retry;
  if (allowed != 7 && qp.rnr_tries++ >= allowed) {
    fail(qp, work, IBV_WC_RNR_RETRY_EXC_ERR);
    return retire(qp);
  }
  ++host(*qp.owner).counters.rnr_waits;
  qp.awaits_receive = true;
  changed();
  qp.not_before = std::chrono::steady_clock::now() + options_.rnr_wait;
}

void Core::fail(Qp& qp, Work& work, ibv_wc_status status) {
  work.done = true;
  work.status = status;
  qp.failing = true;
}

/// The peer refused what it came to in order: its queue pair breaks too.
void Core::break_peer(Qp& qp, ibv_wc_status status) {
  Qp* peer = reach(qp);
  if (peer == nullptr) return;
  const auto type =
      status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
  raise(*static_cast<Context*>(peer->context), type, peer);
  break_qp(*peer);
}

void Core::retire(Qp& qp) {
  while (qp.begun > 0 && qp.works.front()->done) {
    const std::unique_ptr<Work> work = std::move(qp.works.front());
    qp.works.pop_front();
    --qp.begun;
    const bool failed = work->status != IBV_WC_SUCCESS;
    if (work->signalled || failed) complete(qp, *work, work->status);
    if (!failed) continue;
    if (work->refused) break_peer(qp, work->status);
    return break_qp(qp);
  }
}

void Core::flush(Qp& qp) {
  for (const auto& work : qp.works) complete(qp, *work, IBV_WC_WR_FLUSH_ERR);
  qp.works.clear();
  qp.begun = 0;
}

void Core::complete(Qp& qp, const Work& work, ibv_wc_status status) {
  Entry entry;
  if (status == IBV_WC_SUCCESS) {
    entry.completion.opcode = completed_as(work.opcode);
    entry.completion.byte_len = static_cast<std::uint32_t>(work.bytes);
  } else {
    // Of a failed completion only id, status, queue pair and the vendor's code mean anything.
    std::memset(&entry.completion, 0xee, sizeof(entry.completion));
    entry.completion.vendor_err = 0x80u + static_cast<unsigned>(status);
  }
  entry.completion.wr_id = work.id;
  entry.completion.status = status;
  entry.completion.qp_num = qp.qp_num;
  entry.of_request = true;
  entry.sequence = work.sequence;
  ++host(*qp.owner).counters.signalled;
  if (std::exchange(qp.owner->lose_completion, false)) return;
  push(qp.requests(), entry);
}

void Core::push(Cq& cq, const Entry& entry) {
  if (cq.dead) return;
  if (cq.count == cq.ring.size()) {
    cq.dead = true;
    return raise(*static_cast<Context*>(cq.context), IBV_EVENT_CQ_ERR, &cq);
  }
  Entry& slot = cq.ring[(cq.first + cq.count++) % cq.ring.size()];
  slot = entry;
  const Shown shown(options_.exact_order);
  order_release(&slot);
}

void Core::break_qp(Qp& qp) {
  if (qp.now == IBV_QPS_ERR) return;
  qp.now = IBV_QPS_ERR;
  if (qp.srq != nullptr) {
    raise(*static_cast<Context*>(qp.context), IBV_EVENT_QP_LAST_WQE_REACHED, &qp);
  }
  if (!qp.works.empty()) activate(qp);
}

void Core::reset_qp(Qp& qp) {
  qp.now = IBV_QPS_RESET;
  qp.works.clear();
  qp.begun = 0;
  qp.failing = qp.complained = qp.awaits_receive = false;
  qp.tries = qp.rnr_tries = 0;
  qp.freed = qp.posted;
  qp.not_before = {};
  deactivate(qp);
}

}  // namespace unisono::verbs::fake
