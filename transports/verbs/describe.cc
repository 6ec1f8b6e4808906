// Words for what verbs report by number: completion statuses, asynchronous events, failed calls.
// Each says what it means, the likely cause and the remedy. Values only; any thread.
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transports/verbs/rail.h"

namespace unisono::verbs {
namespace {

struct StatusWords {
  ibv_wc_status status;
  const char* name;
  const char* words;
};

constexpr std::array kStatuses{
    StatusWords{IBV_WC_SUCCESS, "SUCCESS", "no error"},
    StatusWords{IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR",
                "local length error: a message is longer than the receive that it met or than the "
                "port carries; the peer is of another version or hostile"},
    StatusWords{IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR",
                "local queue pair operation error: the device refused the work request; likely a "
                "defect of this program or of the provider"},
    StatusWords{IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR", "local end-to-end context error"},
    StatusWords{IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR",
                "local protection error: memory of this request is not registered (any more); it "
                "was unmapped or freed during the operation"},
    StatusWords{IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR",
                "flushed: the queue pair had failed before; the first other error tells why"},
    StatusWords{IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", "memory window bind error"},
    StatusWords{IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR",
                "bad response: the responder answered with an unexpected packet; look for a "
                "provider or firmware defect"},
    StatusWords{IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR",
                "local access error: incoming data met memory that it may not be written to"},
    StatusWords{IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR",
                "remote invalid request: the peer's device does not accept this operation or its "
                "length; compare versions and max_msg_sz of both ends"},
    StatusWords{IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR",
                "remote access error: address or key is not valid at the peer; its memory was "
                "unmapped or freed during the operation, or one end is of another version"},
    StatusWords{IBV_WC_REM_OP_ERR, "REM_OP_ERR",
                "remote operation error: the peer's device could not finish the request; see the "
                "peer's messages"},
    StatusWords{IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR",
                "transport retry counter exceeded: the peer does not answer; it is dead, its port "
                "or a cable is down, or the network loses packets (RoCE: check PFC or ECN, the "
                "MTU and that both GIDs are in one network)"},
    StatusWords{IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR",
                "receiver-not-ready retry counter exceeded: the peer gives no receives; it is "
                "stopped, overloaded or has failed"},
    StatusWords{IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", "local reliable datagram violation"},
    StatusWords{IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR",
                "remote invalid reliable datagram request"},
    StatusWords{IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", "the responder aborted the operation"},
    StatusWords{IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", "invalid end-to-end context number"},
    StatusWords{IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR", "invalid end-to-end context state"},
    StatusWords{IBV_WC_FATAL_ERR, "FATAL_ERR",
                "fatal device error: the device must be reset; see the kernel's log (dmesg)"},
    StatusWords{IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR",
                "response timeout: the peer does not answer; it is dead or its port is down"},
    StatusWords{IBV_WC_GENERAL_ERR, "GENERAL_ERR",
                "general error of the provider; see the kernel's log (dmesg) and the vendor code"},
    StatusWords{IBV_WC_TM_ERR, "TM_ERR", "tag matching error"},
    StatusWords{IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE", "tag matching was incomplete"},
};

enum class Affects { kDevice, kPort, kQueuePair, kCompletionQueue, kReceiveQueue };

struct EventWords {
  ibv_event_type type;
  const char* name;
  Affects affects;
  const char* words;
};

constexpr std::array kEvents{
    EventWords{IBV_EVENT_CQ_ERR, "CQ_ERR", Affects::kCompletionQueue,
               "the completion queue overran or its memory failed"},
    EventWords{IBV_EVENT_QP_FATAL, "QP_FATAL", Affects::kQueuePair, "the queue pair failed"},
    EventWords{IBV_EVENT_QP_REQ_ERR, "QP_REQ_ERR", Affects::kQueuePair,
               "the peer sent an invalid request"},
    EventWords{IBV_EVENT_QP_ACCESS_ERR, "QP_ACCESS_ERR", Affects::kQueuePair,
               "the peer's request named memory or a key that is not valid here"},
    EventWords{IBV_EVENT_COMM_EST, "COMM_EST", Affects::kQueuePair, "the first packet arrived"},
    EventWords{IBV_EVENT_SQ_DRAINED, "SQ_DRAINED", Affects::kQueuePair,
               "the send queue is drained"},
    EventWords{IBV_EVENT_PATH_MIG, "PATH_MIG", Affects::kQueuePair,
               "the connection moved to its other path"},
    EventWords{IBV_EVENT_PATH_MIG_ERR, "PATH_MIG_ERR", Affects::kQueuePair,
               "the connection could not move to its other path"},
    EventWords{IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL", Affects::kDevice,
               "the device failed or was removed: see the kernel's log (dmesg); restart the "
               "program once it is back"},
    EventWords{IBV_EVENT_PORT_ACTIVE, "PORT_ACTIVE", Affects::kPort, "the link came up"},
    EventWords{IBV_EVENT_PORT_ERR, "PORT_ERR", Affects::kPort,
               "the link went down: check cable and switch, on Ethernet that the network "
               "interface is up (ip link), on InfiniBand the subnet manager"},
    EventWords{IBV_EVENT_LID_CHANGE, "LID_CHANGE", Affects::kPort,
               "the subnet manager changed the LID"},
    EventWords{IBV_EVENT_PKEY_CHANGE, "PKEY_CHANGE", Affects::kPort,
               "the table of partition keys changed"},
    EventWords{IBV_EVENT_SM_CHANGE, "SM_CHANGE", Affects::kPort, "the subnet manager changed"},
    EventWords{IBV_EVENT_SRQ_ERR, "SRQ_ERR", Affects::kReceiveQueue,
               "the shared receive queue failed"},
    EventWords{IBV_EVENT_SRQ_LIMIT_REACHED, "SRQ_LIMIT_REACHED", Affects::kReceiveQueue,
               "the shared receive queue runs low"},
    EventWords{IBV_EVENT_QP_LAST_WQE_REACHED, "QP_LAST_WQE_REACHED", Affects::kQueuePair,
               "the failed queue pair has taken its last receive"},
    EventWords{IBV_EVENT_CLIENT_REREGISTER, "CLIENT_REREGISTER", Affects::kPort,
               "the subnet manager asks for subscriptions anew"},
    EventWords{IBV_EVENT_GID_CHANGE, "GID_CHANGE", Affects::kPort, "the table of GIDs changed"},
    EventWords{IBV_EVENT_WQ_FATAL, "WQ_FATAL", Affects::kDevice, "a work queue failed"},
};

std::string affected(Affects affects, const ibv_async_event& event) {
  if (affects == Affects::kPort) return "port " + std::to_string(event.element.port_num) + ": ";
  if (affects == Affects::kQueuePair && event.element.qp != nullptr) {
    return "queue pair " + std::to_string(event.element.qp->qp_num) + ": ";
  }
  return "";
}

std::string memlock_words(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return ": locked memory is not limited here (memlock unlimited), so the device or the kernel "
           "has no more of these; use fewer ranks, queue pairs or less registered memory";
  }
  return ": the limit of locked memory (memlock) is " + std::to_string(limit.rlim_cur / 1024) +
         " KiB" + (bytes > limit.rlim_cur ? ", less than this call alone needs" : "") +
         "; raise it: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, docker run "
         "--ulimit memlock=-1, or 'memlock unlimited' in /etc/security/limits.conf; if it does "
         "not bind (CAP_IPC_LOCK), the device has no more of these";
}

struct Cause {
  ErrorCode code;
  std::string words;
};

Cause cause_of(int error_number, std::size_t bytes) {
  switch (error_number) {
    case ENOMEM:
      return {ErrorCode::kOutOfResources, memlock_words(bytes)};
    case ENOSPC:
      return {ErrorCode::kOutOfResources,
              ": the device has no more of these; use fewer ranks or "
              "queue pairs on it"};
    case EMFILE:
      return {ErrorCode::kOutOfResources,
              ": too many open files in this process; raise ulimit -n (LimitNOFILE= in a systemd "
              "unit, docker run --ulimit nofile=)"};
    case ENFILE:
      return {ErrorCode::kOutOfResources, ": too many open files on this host; raise fs.file-max"};
    case EACCES:
      return {ErrorCode::kUnsupported,
              ": this user may not open /dev/infiniband/uverbs*; give it read and write (a udev "
              "rule with MODE=\"0666\", or its group)"};
    case EPERM:
      return {ErrorCode::kUnsupported,
              ": not permitted; in a container pass the device through (docker run "
              "--device=/dev/infiniband; Kubernetes: an RDMA device plug-in) and allow locked "
              "memory (--cap-add=IPC_LOCK)"};
    case ENOENT:
      return {ErrorCode::kUnsupported,
              ": the device's node in /dev/infiniband is not here; in a container pass it through "
              "(docker run --device=/dev/infiniband; Kubernetes: an RDMA device plug-in)"};
    case EFAULT:
      return {ErrorCode::kInvalidArgument,
              ": the memory is not mapped, or only for reading, or cannot be pinned"};
    case EINVAL:
      return {bytes > 0 ? ErrorCode::kInvalidArgument : ErrorCode::kSystem,
              ": the device does not accept these arguments"};
    case EOPNOTSUPP:
    case ENOSYS:
      return {ErrorCode::kUnsupported, ": the device, its provider or the kernel cannot do this"};
    case ENODEV:
    case ENXIO:
    case EIO:
      return {ErrorCode::kSystem, ": the device has failed or gone; see the kernel's log (dmesg)"};
    default:
      return {ErrorCode::kSystem, ""};
  }
}

}  // namespace

std::string describe(ibv_wc_status status) {
  const std::string number = " (" + std::to_string(static_cast<int>(status)) + "): ";
  for (const StatusWords& known : kStatuses) {
    if (known.status == status) return known.name + number + known.words;
  }
  return "completion status" + number + "unknown to this version; see the provider's manual";
}

std::string describe(const ibv_async_event& event) {
  const std::string number = " (" + std::to_string(static_cast<int>(event.event_type)) + "): ";
  for (const EventWords& known : kEvents) {
    if (known.type == event.event_type) {
      return known.name + number + affected(known.affects, event) + known.words;
    }
  }
  return "asynchronous event" + number + "unknown to this version";
}

bool names_queue_pair(const ibv_async_event& event) {
  return std::any_of(kEvents.begin(), kEvents.end(), [&](const EventWords& known) {
    return known.type == event.event_type && known.affects == Affects::kQueuePair;
  });
}

std::string describe_errno(int error_number) {
  return std::string(std::strerror(error_number)) + ", errno " + std::to_string(error_number);
}

Status call_failed(std::string_view call, const std::string& rail, int error_number,
                   std::size_t bytes) {
  const Cause cause = cause_of(error_number, bytes);
  std::string message = (rail.empty() ? "" : rail + ": ") + std::string(call) + " failed";
  if (bytes > 0) message += " for " + std::to_string(bytes) + " bytes";
  message += " (" + describe_errno(error_number) + ")" + cause.words;
  return Status(cause.code, std::move(message));
}

int error_of(int result) {
  if (result > 0) return result;
  return result == 0 ? 0 : (errno != 0 ? errno : EIO);
}

std::string port_name(const VerbsPort& port) {
  return port.device + " port " + std::to_string(port.port);
}

}  // namespace unisono::verbs
