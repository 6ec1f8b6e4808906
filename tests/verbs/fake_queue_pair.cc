// Reliable connected queue pairs: limits at creation and the state machine, as strict as a device.
#include <algorithm>
#include <cerrno>

#include "tests/verbs/fake_device.h"

namespace unisono::verbs::fake {
namespace {

constexpr std::uint32_t kNumberMax = 0xffffff;

struct Change {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int allowed;  ///< beyond those required
};

constexpr Change kChanges[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

/// The errno values of the kernel's check: masks that fit no change are invalid.
bool is_allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == IBV_QP_STATE;
  for (const Change& change : kChanges) {
    if (change.from != from || change.to != to) continue;
    const int given = mask & ~IBV_QP_STATE;
    return (given & change.required) == change.required &&
           (given & ~(change.required | change.allowed)) == 0;
  }
  return false;
}

}  // namespace

int FakeDevice::check_sizes(const Device& device, const ibv_qp_init_attr& attributes) {
  const FakeDeviceOptions& options = device.options;
  const ibv_qp_cap& cap = attributes.cap;
  const auto entries_max = static_cast<std::uint32_t>(options.qp_entries_max);
  const auto sges_max = static_cast<std::uint32_t>(options.sges_max);
  if (attributes.qp_type != IBV_QPT_RC)
    return core_->refuse(EOPNOTSUPP, device, "create_qp: only RC");
  if (attributes.send_cq == nullptr || attributes.recv_cq == nullptr)
    return core_->refuse(EINVAL, device, "create_qp: no completion queue");
  if (cap.max_send_wr > entries_max || cap.max_recv_wr > entries_max ||
      cap.max_send_sge > sges_max || cap.max_recv_sge > sges_max ||
      cap.max_inline_data > options.inline_bytes_max)
    return core_->refuse(EINVAL, device, "create_qp: beyond the device's limits");
  return 0;
}

ibv_qp* FakeDevice::create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  Section section(*core_);
  auto* open = static_cast<Context*>(pd->context);
  int error = obstacle(FakeCall::kCreateQp, *open->owner);
  const bool is_told = error != 0 || !open->owner->options.refuses_sizes_silently;
  if (error == 0) error = check_sizes(*open->owner, *attributes);
  if (error != 0) {
    if (is_told) errno = error;
    return nullptr;
  }
  auto* qp = new Qp{};
  qp->context = pd->context;
  qp->qp_context = attributes->qp_context;
  qp->pd = pd;
  qp->send_cq = attributes->send_cq;
  qp->recv_cq = attributes->recv_cq;
  qp->srq = attributes->srq;
  qp->qp_num = core_->new_qp_number();
  qp->state = IBV_QPS_RESET;
  qp->qp_type = IBV_QPT_RC;
  qp->owner = open->owner;
  qp->cap = attributes->cap;
  qp->signal_all = attributes->sq_sig_all != 0;
  core_->by_number()[qp->qp_num] = qp;
  ++open->users;
  ++static_cast<Pd*>(pd)->users;
  ++qp->requests().users;
  ++qp->receives().users;
  if (qp->srq != nullptr) ++static_cast<Srq*>(qp->srq)->users;
  ++counters().qps;
  return qp;
}

int FakeDevice::check_change(const Qp& qp, const ibv_qp_attr& asked, int mask) {
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? asked.qp_state : qp.now;
  if (!is_allowed(qp.now, to, mask)) {
    return core_->refuse(EINVAL, *qp.owner,
                         "modify_qp: from state " + std::to_string(qp.now) + " to " +
                             std::to_string(to) + " with mask " + std::to_string(mask));
  }
  return check_values(qp, asked, mask);
}

int FakeDevice::check_values(const Qp& qp, const ibv_qp_attr& asked, int mask) {
  const Device& device = *qp.owner;
  const auto given = [mask](int what) { return (mask & what) != 0; };
  const auto rd_atomic_max = static_cast<unsigned>(device.options.rd_atomic_max);
  const char* wrong = nullptr;
  if (given(IBV_QP_PORT) && asked.port_num != 1) wrong = "port_num";
  if (given(IBV_QP_PKEY_INDEX) && asked.pkey_index >= device.options.pkeys.size())
    wrong = "pkey_index";
  if (given(IBV_QP_PATH_MTU) &&
      (asked.path_mtu < IBV_MTU_256 || asked.path_mtu > device.options.mtu))
    wrong = "path_mtu";
  if (given(IBV_QP_DEST_QPN) && asked.dest_qp_num > kNumberMax) wrong = "dest_qp_num";
  if (given(IBV_QP_RQ_PSN) && asked.rq_psn > kNumberMax) wrong = "rq_psn";
  if (given(IBV_QP_SQ_PSN) && asked.sq_psn > kNumberMax) wrong = "sq_psn";
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && asked.max_dest_rd_atomic > rd_atomic_max)
    wrong = "max_dest_rd_atomic";
  if (given(IBV_QP_MAX_QP_RD_ATOMIC) && asked.max_rd_atomic > rd_atomic_max)
    wrong = "max_rd_atomic";
  if (given(IBV_QP_MIN_RNR_TIMER) && asked.min_rnr_timer > 31) wrong = "min_rnr_timer";
  if (given(IBV_QP_TIMEOUT) && asked.timeout > 31) wrong = "timeout";
  if (given(IBV_QP_RETRY_CNT) && asked.retry_cnt > 7) wrong = "retry_cnt";
  if (given(IBV_QP_RNR_RETRY) && asked.rnr_retry > 7) wrong = "rnr_retry";
  if (given(IBV_QP_CUR_STATE) && asked.cur_qp_state != qp.now) wrong = "cur_qp_state";
  if (wrong == nullptr) return 0;
  return core_->refuse(EINVAL, device, std::string("modify_qp: ") + wrong);
}

/// Whom an address vector leads to; ETIMEDOUT as the kernel's address resolution ends.
int FakeDevice::find_path(Qp& qp, const ibv_ah_attr& path) {
  const Device& device = *qp.owner;
  const bool ethernet = device.options.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (path.port_num != 1) return core_->refuse(EINVAL, device, "modify_qp: ah_attr.port_num");
  if (path.sl > 15) return core_->refuse(EINVAL, device, "modify_qp: ah_attr.sl");
  if (ethernet && path.is_global == 0)
    return core_->refuse(EINVAL, device, "modify_qp: RoCE needs ah_attr.is_global");
  Device* found = nullptr;
  if (path.is_global != 0) {
    const auto& gids = device.options.gids;
    if (path.grh.sgid_index >= gids.size())
      return core_->refuse(EINVAL, device, "modify_qp: sgid_index names no GID");
    if (path.grh.hop_limit == 0)
      return core_->refuse(EINVAL, device, "modify_qp: hop_limit 0 leaves no port");
    found = core_->find_gid(path.grh.dgid, gids[path.grh.sgid_index].type);
  }
  if (!ethernet) {
    Device* local = core_->find_lid(path.dlid);
    if (found != nullptr && found != local) local = nullptr;
    found = local;
  }
  if (found == nullptr || core_->host(*found).unplugged)
    return core_->refuse(ETIMEDOUT, device, "modify_qp: no port has that address and type");
  qp.peer_device = found;
  return 0;
}

void FakeDevice::adopt(Qp& qp, const ibv_qp_attr& asked, int mask) {
  ibv_qp_attr& kept = qp.attributes;
  const auto given = [mask](int what) { return (mask & what) != 0; };
  if (given(IBV_QP_PORT)) kept.port_num = asked.port_num;
  if (given(IBV_QP_PKEY_INDEX)) kept.pkey_index = asked.pkey_index;
  if (given(IBV_QP_ACCESS_FLAGS)) kept.qp_access_flags = asked.qp_access_flags;
  if (given(IBV_QP_AV)) kept.ah_attr = asked.ah_attr;
  if (given(IBV_QP_PATH_MTU)) kept.path_mtu = asked.path_mtu;
  if (given(IBV_QP_DEST_QPN)) kept.dest_qp_num = asked.dest_qp_num;
  if (given(IBV_QP_RQ_PSN)) kept.rq_psn = asked.rq_psn;
  if (given(IBV_QP_SQ_PSN)) kept.sq_psn = asked.sq_psn;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC)) kept.max_dest_rd_atomic = asked.max_dest_rd_atomic;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC)) kept.max_rd_atomic = asked.max_rd_atomic;
  if (given(IBV_QP_MIN_RNR_TIMER)) kept.min_rnr_timer = asked.min_rnr_timer;
  if (given(IBV_QP_TIMEOUT)) kept.timeout = asked.timeout;
  if (given(IBV_QP_RETRY_CNT)) kept.retry_cnt = asked.retry_cnt;
  if (given(IBV_QP_RNR_RETRY)) kept.rnr_retry = asked.rnr_retry;
}

int FakeDevice::modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  auto& changed = *static_cast<Qp*>(qp);
  Section section(*core_);
  int error = obstacle(FakeCall::kModifyQp, *changed.owner);
  if (error == 0) {
    core_->quiesce(section);
    error = check_change(changed, *attributes, mask);
  }
  if (error == 0 && (mask & IBV_QP_AV) != 0) error = find_path(changed, attributes->ah_attr);
  if (error != 0) return error;
  adopt(changed, *attributes, mask);
  if ((mask & IBV_QP_STATE) == 0) return 0;
  qp->state = attributes->qp_state;
  if (attributes->qp_state == IBV_QPS_ERR) {
    core_->break_qp(changed);
  } else if (attributes->qp_state == IBV_QPS_RESET) {
    core_->reset_qp(changed);
    core_->forget_completions(changed.requests(), changed.qp_num);
    core_->forget_completions(changed.receives(), changed.qp_num);
  } else {
    changed.now = attributes->qp_state;
  }
  return 0;
}

int FakeDevice::destroy_qp(ibv_qp* qp) {
  auto* old = static_cast<Qp*>(qp);
  auto* open = static_cast<Context*>(qp->context);
  {
    Section section(*core_);
    core_->quiesce(section);
    core_->by_number().erase(old->qp_num);
    core_->free_qp_number(old->qp_num);
    core_->reset_qp(*old);
    if (core_->options().forget_completions_of_destroyed) {
      core_->forget_completions(old->requests(), old->qp_num);
      core_->forget_completions(old->receives(), old->qp_num);
    }
    core_->settle_events(section, *open, old);
    --open->users;
    --static_cast<Pd*>(qp->pd)->users;
    --old->requests().users;
    --old->receives().users;
    if (qp->srq != nullptr) --static_cast<Srq*>(qp->srq)->users;
    --counters().qps;
  }
  order_acquire(&old->touched);
  const Hidden hidden(core_->options().exact_order);
  delete old;
  return 0;
}

}  // namespace unisono::verbs::fake
