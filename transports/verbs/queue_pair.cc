// States, chains and signalling of one queue pair; see queue_pair.h.
#include "transports/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/assert.h"
#include "base/log.h"
#include "transports/verbs/port_address.h"

namespace unisono::verbs {
namespace {

constexpr std::uint32_t kInlineBytesWanted = 256;
// A completion for every so many: the fewer, the fewer interrupts of the reader; the more, the
// sooner a slot is free again and a piece can be reduced.
constexpr int kSignalEvery = 16;
constexpr int kReadsPerSignal = 4;
// 82 ms: how long a peer without a free receive is left alone. It has run out of them because it
// has not looked for a while; `retries` times this is what it may take.
constexpr std::uint8_t kReceiverNotReadyTimer = 26;

std::uint32_t random_packet_number() {
  static thread_local std::random_device source;
  return source() & 0xffffff;
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(Rail& rail, std::size_t index, int ordinal,
                                                   const VerbsOptions& options,
                                                   WorkCounts& counts) {
  std::unique_ptr<QueuePair> made(new QueuePair(rail, options, counts));
  UNISONO_TRY(made->create(index, ordinal));
  UNISONO_TRY(made->initialise());
  return made;
}

QueuePair::~QueuePair() {
  if (qp_ == nullptr) return;
  if (const int failed = rail_.api().destroy_qp(qp_); failed != 0) {
    log::error(call_failed("ibv_destroy_qp", rail_.name(), error_of(failed)).message());
  }
}

void QueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  rail_.api().modify_qp(qp_, &attributes, IBV_QP_STATE);
}

Status QueuePair::create(std::size_t index, int ordinal) {
  depth_ = std::min(kSendDepth, rail_.sends_per_queue_pair());
  signal_every_ = std::clamp(depth_ / 4, 1, kSignalEvery);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = rail_.cq();
  wanted.recv_cq = rail_.cq();
  wanted.srq = rail_.srq();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = static_cast<std::uint32_t>(depth_);
  wanted.cap.max_send_sge = 1;
  // Devices refuse more inline data than they have; what they have they do not say beforehand.
  for (std::uint32_t bytes = kInlineBytesWanted;; bytes /= 2) {
    if (bytes < kLine) bytes = 0;
    ibv_qp_init_attr attributes = wanted;
    attributes.cap.max_inline_data = bytes;
    errno = 0;
    qp_ = rail_.api().create_qp(rail_.pd(), &attributes);
    inline_bytes_ = bytes;
    if (qp_ != nullptr) break;
    // Some do not say why (bnxt_re).
    const bool may_be_too_much = errno == 0 || errno == EINVAL;
    if (!may_be_too_much || bytes == 0) {
      return call_failed("ibv_create_qp", rail_.name(), error_of(-1));
    }
  }
  const PortSurvey& port = rail_.port();
  end_.rail = static_cast<std::uint8_t>(index);
  end_.ordinal = static_cast<std::uint8_t>(ordinal);
  end_.infiniband = is_infiniband(port.attributes);
  end_.needs_grh = (port.attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  end_.roce_v1 = is_roce_v1(port);
  end_.mtu = static_cast<std::uint8_t>(port.attributes.active_mtu);
  end_.lid = port.attributes.lid;
  end_.pkey = port.pkey;
  end_.rd_atomic = static_cast<std::uint8_t>(std::clamp(port.rd_atomic_max, 1, 255));
  end_.number = qp_->qp_num;
  end_.first_packet = random_packet_number();
  std::memcpy(end_.gid.data(), port.gid.raw, end_.gid.size());
  return Status();
}

Status QueuePair::initialise() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = rail_.port().pkey_index;
  attributes.port_num = rail_.port().port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int failed = rail_.api().modify_qp(
      qp_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return failed == 0 ? Status()
                     : call_failed("ibv_modify_qp (init)", rail_.name(), error_of(failed));
}

Status QueuePair::connect(const QueuePairEnd& peer, const Path& path) {
  peer_rail_ = peer.rail;
  UNISONO_TRY(make_ready_to_receive(peer, path));
  return make_ready_to_send(peer, path);
}

Status QueuePair::make_ready_to_receive(const QueuePairEnd& peer, const Path& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = path.mtu;
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = end_.rd_atomic;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  attributes.ah_attr = path.address;
  const int failed =
      rail_.api().modify_qp(qp_, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return failed == 0
             ? Status()
             : call_failed("ibv_modify_qp (ready to receive)", rail_.name(), error_of(failed));
}

Status QueuePair::make_ready_to_send(const QueuePairEnd& peer, const Path& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = path.ack_timeout;
  attributes.retry_cnt = static_cast<std::uint8_t>(options_.retries);
  attributes.rnr_retry = static_cast<std::uint8_t>(options_.retries);
  attributes.sq_psn = end_.first_packet;
  attributes.max_rd_atomic = std::min(peer.rd_atomic, end_.rd_atomic);
  const int failed =
      rail_.api().modify_qp(qp_, &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return failed == 0 ? Status()
                     : call_failed("ibv_modify_qp (ready to send)", rail_.name(), error_of(failed));
}

std::size_t QueuePair::transfer_bytes_max() const {
  const std::size_t requests = static_cast<std::size_t>(std::max(0, room() - 2));
  return requests * (rail_.port().message_bytes / kLine * kLine);
}

ibv_send_wr& QueuePair::stage(const LocalPiece& local, const RemotePiece& remote,
                              ibv_wr_opcode opcode) {
  UNISONO_ASSERT(room() > 0, "a work request was staged without room for it");
  ibv_sge& piece = pieces_[static_cast<std::size_t>(staged_)];
  piece.addr = reinterpret_cast<std::uint64_t>(local.begin);
  piece.length = static_cast<std::uint32_t>(local.bytes);
  piece.lkey = local.key;
  ibv_send_wr& request = requests_[static_cast<std::size_t>(staged_)];
  request = {};
  request.wr_id = static_cast<std::uint64_t>(posted_ + staged_ + 1);
  request.sg_list = &piece;
  request.num_sge = local.bytes > 0 ? 1 : 0;
  request.opcode = opcode;
  request.wr.rdma.remote_addr = remote.address;
  request.wr.rdma.rkey = remote.key;
  if (staged_ > 0) requests_[static_cast<std::size_t>(staged_ - 1)].next = &request;
  ++staged_;
  if (posted_ + staged_ - signalled_ >= signal_every_) signal();
  return request;
}

void QueuePair::signal() {
  ibv_send_wr& last = requests_[static_cast<std::size_t>(staged_ - 1)];
  if ((last.send_flags & IBV_SEND_SIGNALED) != 0) return;
  last.send_flags |= IBV_SEND_SIGNALED;
  signalled_ = posted_ + staged_;
  reads_unsignalled_ = 0;
  completion_wanted_ = false;
  ++counts_.signalled;
}

void QueuePair::stage_write(const LocalPiece& from, const RemotePiece& to,
                            std::uint32_t immediate) {
  const std::size_t most = rail_.port().message_bytes / kLine * kLine;
  for (std::size_t done = 0; done < from.bytes;) {
    const std::size_t bytes = std::min(most, from.bytes - done);
    const bool last = done + bytes == from.bytes;
    ibv_send_wr& request = stage({from.begin + done, bytes, from.key}, {to.address + done, to.key},
                                 last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE);
    if (last) request.imm_data = htobe32(immediate);
    if (bytes <= inline_bytes_) request.send_flags |= IBV_SEND_INLINE;
    done += bytes;
    ++counts_.writes;
  }
}

std::uint64_t QueuePair::stage_read(const LocalPiece& into, const RemotePiece& from) {
  const std::size_t most = rail_.port().message_bytes / kLine * kLine;
  for (std::size_t done = 0; done < into.bytes;) {
    const std::size_t bytes = std::min(most, into.bytes - done);
    stage({into.begin + done, bytes, into.key}, {from.address + done, from.key}, IBV_WR_RDMA_READ);
    done += bytes;
    ++counts_.reads;
  }
  completion_wanted_ = true;
  if (++reads_unsignalled_ >= kReadsPerSignal) signal();
  return static_cast<std::uint64_t>(posted_ + staged_);
}

std::uint64_t QueuePair::stage_immediate(std::uint32_t immediate) {
  stage({}, {}, IBV_WR_RDMA_WRITE_WITH_IMM).imm_data = htobe32(immediate);
  ++counts_.immediates;
  return static_cast<std::uint64_t>(posted_ + staged_);
}

Status QueuePair::post() {
  if (staged_ == 0) return Status();
  if (completion_wanted_) signal();
  ibv_send_wr* bad = nullptr;
  const int failed = rail_.api().post_send(qp_, requests_.data(), &bad);
  if (failed != 0) return call_failed("ibv_post_send", rail_.name(), error_of(failed));
  posted_ += staged_;
  staged_ = 0;
  return Status();
}

}  // namespace unisono::verbs
