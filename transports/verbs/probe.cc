// What this machine offers to the verbs transport, for people and for the choice of a transport:
// its ports, or why it has none. Set-up only; any thread.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"
#include "transports/verbs/path_resolver.h"
#include "transports/verbs/rail.h"

namespace unisono {
namespace verbs {
namespace {

namespace fs = std::filesystem;

/// Names in a folder that begin so, in order; none where there is no such folder.
std::vector<std::string> names_in(const fs::path& folder, std::string_view beginning) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.substr(0, beginning.size()) == beginning) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool in_container(const std::string& root) {
  std::error_code error;
  return fs::exists(root + "/.dockerenv", error) ||
         fs::exists(root + "/run/.containerenv", error) ||
         fs::exists(root + "/var/run/secrets/kubernetes.io", error);
}

constexpr const char* kPassThrough =
    "docker run --device=/dev/infiniband --ulimit memlock=-1; Kubernetes: an RDMA device plug-in";

std::string why_no_node(const std::string& root, const std::vector<std::string>& devices) {
  const std::string have =
      "the kernel has " + listed(devices) + ", but there is no /dev/infiniband/uverbs* here: ";
  if (in_container(root)) {
    return have + "the device was not passed into this container (" + kPassThrough + ")";
  }
  return have +
         "udev has not made it (udevadm trigger), or this is a container without the device "
         "(" +
         kPassThrough + ")";
}

std::string why_not_opened(const std::string& root, const std::string& name, int error) {
  const std::string what =
      "/dev/infiniband/" + name + " cannot be opened (" + std::strerror(error) + "): ";
  if (error == EACCES) {
    return what +
           "give this user read and write on it (a udev rule with MODE=\"0666\", or its "
           "group)";
  }
  if (error == EPERM || in_container(root)) {
    return what + "the container's device rules forbid it (" + kPassThrough + ")";
  }
  if (error == ENXIO || error == ENODEV) {
    return what + "the device has gone or its driver is not loaded (modprobe ib_uverbs)";
  }
  return what + "see the kernel's log (dmesg)";
}

}  // namespace

std::string why_no_device(const std::string& root) {
  const std::vector<std::string> devices = names_in(root + "/sys/class/infiniband", "");
  if (devices.empty()) {
    return "the kernel has no RDMA device: no adapter, or its driver is not loaded (modprobe "
           "mlx5_ib, irdma, bnxt_re, ...; without an adapter soft-RoCE serves for trials: modprobe "
           "rdma_rxe, rdma link add rxe0 type rxe netdev eth0)";
  }
  if (names_in(root + "/sys/class/infiniband_verbs", "uverbs").empty()) {
    return "the kernel has " + listed(devices) +
           ", but its user interface is not loaded: modprobe ib_uverbs";
  }
  const std::vector<std::string> nodes = names_in(root + "/dev/infiniband", "uverbs");
  if (nodes.empty()) return why_no_node(root, devices);
  for (const std::string& name : nodes) {
    const std::string path = root + "/dev/infiniband/" + name;
    const UniqueFd node(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!node) return why_not_opened(root, name, errno);
  }
  return "the kernel has " + listed(devices) +
         ", but libibverbs knows no provider for it: install the providers of rdma-core (Debian, "
         "Ubuntu: ibverbs-providers) or the vendor's";
}

int open_error(const ibv_device& device, int reported) {
  const std::string name(device.dev_name, strnlen(device.dev_name, sizeof(device.dev_name)));
  if (name.empty()) return reported;
  const std::string path = "/dev/infiniband/" + name;
  const UniqueFd node(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return node ? reported : errno;
}

}  // namespace verbs

Result<std::vector<VerbsPort>> list_verbs_ports(const VerbsOptions& options) {
  UNISONO_TRY(verbs::check_options(options));
  UNISONO_ASSIGN(const std::shared_ptr<verbs::VerbsApi> api, verbs::load_verbs_library());
  UNISONO_ASSIGN(const std::vector<verbs::PortSurvey> surveys, verbs::survey_ports(*api, options));
  std::vector<VerbsPort> ports;
  ports.reserve(surveys.size());
  for (const verbs::PortSurvey& survey : surveys) ports.push_back(survey.shown);
  return ports;
}

Probe probe_verbs_transport(const VerbsOptions& options) {
  const Result<std::vector<VerbsPort>> ports = list_verbs_ports(options);
  if (!ports) return Probe{false, ports.error().message()};
  std::string usable;
  std::string unusable;
  for (const VerbsPort& port : *ports) {
    std::string& list = port.usable ? usable : unusable;
    list += (list.empty() ? "" : "; ") + verbs::port_name(port) + ": " + port.reason;
  }
  if (usable.empty()) return Probe{false, "no usable port: " + unusable};
  if (options.connect == VerbsConnect::kCm) {
    if (const Status paths = verbs::check_path_resolver(); !paths) {
      return Probe{false, paths.message()};
    }
  }
  return Probe{true, usable};
}

}  // namespace unisono
