// The fake's bookkeeping: hosts with their devices, keys and numbers, events, injected failures.
#include "tests/verbs/fake_core.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace unisono::verbs::fake {
namespace {

/// Words kept; a test that refuses more calls than this has seen enough of them.
constexpr std::size_t kComplaintsMax = 1000;

std::vector<FakeGid> usual_gids(const Device& device) {
  ibv_gid local{};
  local.raw[0] = 0xfe;
  local.raw[1] = 0x80;
  local.raw[8] = 0x02;
  local.raw[13] = static_cast<std::uint8_t>(device.index);
  local.raw[14] = static_cast<std::uint8_t>(device.host >> 8);
  local.raw[15] = static_cast<std::uint8_t>(device.host);
  if (device.options.link_layer == IBV_LINK_LAYER_INFINIBAND) return {{local, IBV_GID_TYPE_IB}};
  const ibv_gid address = ipv4_gid(10, static_cast<std::uint8_t>(device.index),
                                   static_cast<std::uint8_t>((device.host + 1) >> 8),
                                   static_cast<std::uint8_t>(device.host + 1));
  return {{local, IBV_GID_TYPE_ROCE_V1},
          {local, IBV_GID_TYPE_ROCE_V2},
          {address, IBV_GID_TYPE_ROCE_V1},
          {address, IBV_GID_TYPE_ROCE_V2}};
}

std::unique_ptr<Device> make_device(int host, int index, const FakeDeviceOptions& options) {
  auto device = std::make_unique<Device>();
  device->host = host;
  device->index = index;
  device->options = options;
  device->up = !options.down;
  if (options.name.empty()) device->options.name = "fake" + std::to_string(index);
  if (options.gids.empty()) device->options.gids = usual_gids(*device);
  if (options.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    device->lid = static_cast<std::uint16_t>(1 + host * 16 + index);
  }
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  std::strncpy(device->ibv_device::name, device->options.name.c_str(), IBV_SYSFS_NAME_MAX - 1);
  return device;
}

}  // namespace

Core::Core(FakeFabricOptions options) : options_(std::move(options)), random_(options_.seed) {
  for (std::size_t h = 0; h < options_.hosts.size(); ++h) {
    hosts_.push_back(std::make_unique<Host>());
    for (std::size_t d = 0; d < options_.hosts[h].size(); ++d) {
      hosts_.back()->devices.push_back(
          make_device(static_cast<int>(h), static_cast<int>(d), options_.hosts[h][d]));
    }
  }
  last_qp_number_ = static_cast<std::uint32_t>(0x100 + below(0x10000));
  free_qp_numbers_.reserve(1024);
  thread_ = std::thread([this] { run(); });
}

Core::~Core() {
  {
    Section section(*this);
    stopping_ = true;
    wake();
  }
  thread_.join();
}

int Core::failure(int host_index, FakeCall call) {
  auto& failures = host(host_index).failures;
  int error_number = 0;
  for (std::size_t i = 0; i < failures.size();) {
    if (failures[i].call != call || failures[i].after-- > 0) {
      ++i;
      continue;
    }
    error_number = failures[i].error_number;
    if (failures[i].for_good) {
      failures[i++].after = 0;
      continue;
    }
    failures.erase(failures.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return error_number;
}

int Core::refuse(int error_number, const Device& device, const std::string& words) {
  if (complaints_.size() < kComplaintsMax) {
    complaints_.push_back("host " + std::to_string(device.host) + " " + device.options.name + ": " +
                          words);
  }
  return error_number;
}

void Core::raise(Context& context, ibv_event_type type, void* element) {
  if (host(*context.owner).unplugged) return;
  ibv_async_event event{};
  event.event_type = type;
  event.element.cq = static_cast<ibv_cq*>(element);
  context.events.push_back(event);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(context.async_fd, &one, sizeof(one));
}

void Core::raise(Device& device, ibv_event_type type, bool of_port) {
  // The element's union holds the port's number, or nothing.
  void* element = of_port ? reinterpret_cast<void*>(1) : nullptr;
  for (Context* context : device.contexts) raise(*context, type, element);
}

void Core::settle_events(Section& section, Context& context, void* element) {
  std::erase_if(context.events, [element](const ibv_async_event& event) {
    return event.event_type != IBV_EVENT_DEVICE_FATAL && event.element.cq == element;
  });
  wait(section, [this, element] { return unacknowledged_.count(element) == 0; });
}

std::uint32_t Core::new_key() {
  last_key_ += static_cast<std::uint32_t>(0x101 + below(0x300));
  return last_key_;
}

std::uint32_t Core::new_qp_number() {
  if (options_.reuse_numbers && !free_qp_numbers_.empty()) {
    const std::uint32_t number = free_qp_numbers_.back();
    free_qp_numbers_.pop_back();
    return number;
  }
  last_qp_number_ += static_cast<std::uint32_t>(1 + below(16));
  return last_qp_number_ & 0xffffff;
}

Device* Core::find_gid(const ibv_gid& gid, std::uint32_t type) {
  for (const auto& host : hosts_) {
    for (const auto& device : host->devices) {
      for (const FakeGid& known : device->options.gids) {
        const bool same = std::memcmp(known.gid.raw, gid.raw, sizeof(gid.raw)) == 0;
        if (same && known.type == type) return device.get();
      }
    }
  }
  return nullptr;
}

Device* Core::find_lid(std::uint16_t lid) {
  for (const auto& host : hosts_) {
    for (const auto& device : host->devices) {
      if (lid != 0 && device->lid == lid) return device.get();
    }
  }
  return nullptr;
}

void Core::forget_completions(Cq& cq, std::uint32_t qp_number) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < cq.count; ++i) {
    Entry& from = cq.ring[(cq.first + i) % cq.ring.size()];
    if (from.completion.qp_num == qp_number) continue;
    Entry& to = cq.ring[(cq.first + kept++) % cq.ring.size()];
    if (&to == &from) continue;
    to = from;
    // What this completion announces moves with it.
    const Shown shown(options_.exact_order);
    order_acquire(&from);
    order_release(&to);
  }
  cq.count = kept;
}

}  // namespace unisono::verbs::fake
