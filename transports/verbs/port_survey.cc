// Looks at every port of every device before any is chosen: whether it is up, which GID and
// partition it would use, how fast and how wide it is. Set-up only; the caller's thread.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transports/verbs/port_address.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/record.h"
#include "transports/verbs/verbs_options.h"

namespace unisono::verbs {
namespace {

std::string state_text(ibv_port_state state) {
  constexpr std::array kNames{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  const auto index = static_cast<std::size_t>(state);
  return index < kNames.size() ? kNames[index] : "state " + std::to_string(index);
}

Status check_state(const ibv_port_attr& attributes) {
  const bool infiniband = is_infiniband(attributes);
  switch (attributes.state) {
    case IBV_PORT_ACTIVE:
    case IBV_PORT_ACTIVE_DEFER:
      return {};
    case IBV_PORT_INIT:
      return unusable(
          infiniband ? "the port is INIT: the link stands, but no subnet manager has configured "
                       "it; start one (opensm, or the switch's)"
                     : "the port is INIT: its network interface is not ready yet");
    case IBV_PORT_ARMED:
      return unusable(
          "the port is ARMED: the subnet manager has not activated it yet; try again "
          "shortly, or look at the subnet manager's log");
    default:
      return unusable("the port is " + state_text(attributes.state) + ": check cable and switch" +
                      (infiniband ? ""
                                  : ", and bring its network interface up (ip link set dev "
                                    "NAME up; rdma link shows NAME)"));
  }
}

/// Gb/s of one lane by the numbers of the InfiniBand specification.
double lane_rate(unsigned speed) {
  switch (speed) {
    case 1:
      return 2.5;  // SDR
    case 2:
      return 5;  // DDR
    case 4:
      return 10;  // QDR
    case 8:
      return 10;  // FDR10
    case 16:
      return 14;  // FDR
    case 32:
      return 25;  // EDR
    case 64:
      return 50;  // HDR
    case 128:
      return 100;  // NDR
    case 256:
      return 200;  // XDR
    default:
      return 0;
  }
}

int lanes(unsigned width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

/// Headers of rdma-core 55 and later have a wider field: XDR does not fit into the old one.
template <typename Attributes>
double gigabits(const Attributes& attributes) {
  unsigned speed = attributes.active_speed;
  if constexpr (requires { attributes.active_speed_ex; }) {
    if (attributes.active_speed_ex != 0) speed = attributes.active_speed_ex;
  }
  return lane_rate(speed) * lanes(attributes.active_width);
}

Status check_limits(const ibv_device_attr& device, PortSurvey* survey) {
  survey->rd_atomic_max = std::min({device.max_qp_rd_atom, device.max_qp_init_rd_atom, 255});
  survey->cq_entries_max = device.max_cqe;
  survey->srq_entries_max = device.max_srq > 0 ? device.max_srq_wr : 0;
  survey->qp_entries_max = device.max_qp_wr;
  if (survey->rd_atomic_max < 1) return unusable("the device offers no RDMA reads");
  if (survey->srq_entries_max < 1) return unusable("the device offers no shared receive queues");
  if (survey->cq_entries_max < 1 || survey->qp_entries_max < 1) {
    return unusable("the device offers no queue entries (max_cqe " +
                    std::to_string(device.max_cqe) + ", max_qp_wr " +
                    std::to_string(device.max_qp_wr) + ")");
  }
  if (survey->message_bytes < kLine) {
    return unusable("the port carries no more than " + std::to_string(survey->message_bytes) +
                    " bytes a message (max_msg_sz)");
  }
  return {};
}

void show_attributes(const VerbsOptions& options, PortSurvey* survey) {
  const ibv_port_attr& attributes = survey->attributes;
  VerbsPort& shown = survey->shown;
  shown.state = state_text(attributes.state);
  shown.link_layer = is_infiniband(attributes) ? "InfiniBand" : "Ethernet";
  const int mtu = attributes.active_mtu;
  shown.mtu_bytes = mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
  shown.gigabits_per_second = gigabits(attributes);
  survey->message_bytes = attributes.max_msg_sz;
  if (options.message_bytes_max != 0) {
    survey->message_bytes = std::min(survey->message_bytes, options.message_bytes_max);
  }
}

struct Device {
  std::string name;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  ibv_context* context = nullptr;
  ibv_device_attr attributes{};
};

struct Wishes {
  const VerbsOptions& options;
  DeviceFilter filter;
  GidWish gid;
};

/// Fills what can be known; the status is why the port cannot be used.
Status look_at(VerbsApi& api, const Device& device, const Wishes& wishes, PortSurvey* survey) {
  const VerbsOptions& options = wishes.options;
  if (const int error =
          error_of(api.query_port(device.context, survey->port, &survey->attributes))) {
    return unusable("the port cannot be queried (" + std::string(std::strerror(error)) + ")");
  }
  show_attributes(options, survey);
  if (!wishes.filter.admits(device.name, survey->port)) {
    return unusable("left out by the option devices ('" + options.devices + "')");
  }
  if (device.transport != IBV_TRANSPORT_IB) {
    return unusable(
        "the device is neither InfiniBand nor RoCE (iWARP, usNIC, ...): it has no RDMA "
        "write with immediate");
  }
  UNISONO_TRY(check_state(survey->attributes));
  if (survey->shown.mtu_bytes == 0) return unusable("the port has no valid active MTU");
  UNISONO_TRY(choose_gid(api, device.context, wishes.gid, survey));
  UNISONO_TRY(choose_pkey(api, device.context, options.partition_key, survey));
  return check_limits(device.attributes, survey);
}

PortSurvey survey_port(VerbsApi& api, const Device& device, int port, const Wishes& wishes) {
  PortSurvey survey;
  survey.port = static_cast<std::uint8_t>(port);
  survey.shown.device = device.name;
  survey.shown.port = port;
  const Status status = look_at(api, device, wishes, &survey);
  survey.shown.usable = status.ok();
  survey.shown.reason =
      status.ok() ? survey.shown.gid_type + " by " + survey.shown.gid : status.message();
  return survey;
}

PortSurvey failed_device(const Device& device, const char* call, int error) {
  PortSurvey survey;
  survey.shown.device = device.name;
  survey.shown.reason = call_failed(call, "", error).message();
  return survey;
}

void survey_device(VerbsApi& api, ibv_device* handle, const Wishes& wishes,
                   std::vector<PortSurvey>* surveys) {
  Device device;
  const char* name = api.get_device_name(handle);
  device.name = name != nullptr ? name : "?";
  device.transport = handle->transport_type;
  errno = 0;
  device.context = api.open_device(handle);
  if (device.context == nullptr) {
    surveys->push_back(failed_device(device, "ibv_open_device", open_error(*handle, error_of(-1))));
    return;
  }
  if (const int error = error_of(api.query_device(device.context, &device.attributes))) {
    surveys->push_back(failed_device(device, "ibv_query_device", error));
  } else {
    for (int port = 1; port <= device.attributes.phys_port_cnt; ++port) {
      surveys->push_back(survey_port(api, device, port, wishes));
    }
  }
  api.close_device(device.context);
}

/// A name that no device has is a typing error more often than a device that left, and either way
/// the user would get other ports than the ones asked for.
Status check_names(const DeviceFilter& filter, const VerbsOptions& options,
                   const std::vector<PortSurvey>& surveys) {
  std::string known;
  for (const PortSurvey& survey : surveys) {
    known += (known.empty() ? "" : ", ") + port_name(survey.shown);
  }
  for (const DeviceFilter::Item& item : filter.items) {
    const auto is_meant = [&item](const PortSurvey& survey) {
      // A device that could not be opened shows no state, and its ports are not known.
      return survey.shown.device == item.device &&
             (item.port == 0 || survey.port == item.port || survey.shown.state.empty());
    };
    if (std::any_of(surveys.begin(), surveys.end(), is_meant)) continue;
    return Status(ErrorCode::kInvalidArgument,
                  "verbs option devices (UNISONO_VERBS_DEVICES) is '" + options.devices +
                      "', but there is no " + item.device +
                      (item.port ? " port " + std::to_string(item.port) : "") +
                      "; this machine has: " + known);
  }
  return {};
}

}  // namespace

Result<std::vector<PortSurvey>> survey_ports(VerbsApi& api, const VerbsOptions& options) {
  UNISONO_ASSIGN(DeviceFilter filter, parse_devices(options.devices));
  UNISONO_ASSIGN(const GidWish gid, parse_gid(options.gid));
  const Wishes wishes{options, std::move(filter), gid};
  errno = 0;
  int count = 0;
  ibv_device** list = api.get_device_list(&count);
  if (list == nullptr || count < 1) {
    const int error = list == nullptr ? error_of(-1) : 0;
    if (list != nullptr) api.free_device_list(list);
    return unusable("no verbs device" +
                    (error != 0 ? " (" + std::string(std::strerror(error)) + ")" : "") + ": " +
                    why_no_device(""));
  }
  std::vector<PortSurvey> surveys;
  for (int index = 0; index < count; ++index) survey_device(api, list[index], wishes, &surveys);
  api.free_device_list(list);
  UNISONO_TRY(check_names(wishes.filter, options, surveys));
  return surveys;
}

Status refresh_port(VerbsApi& api, ibv_context* context, PortSurvey* port) {
  PortSurvey now = *port;
  if (const int error = error_of(api.query_port(context, port->port, &now.attributes))) {
    return unusable("the port cannot be queried (" + std::string(std::strerror(error)) + ")");
  }
  UNISONO_TRY(check_state(now.attributes));
  UNISONO_TRY(find_gid_again(api, context, &now));
  now.shown.state = state_text(now.attributes.state);
  UNISONO_TRY(choose_pkey(api, context, port->pkey, &now));
  *port = now;
  return {};
}

}  // namespace unisono::verbs
