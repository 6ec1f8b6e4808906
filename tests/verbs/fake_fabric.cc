// The levers of a fake fabric: each takes the core's lock, changes what the device thread will see
// and wakes it.
#include "tests/verbs/fake_fabric.h"

#include <algorithm>

#include "tests/verbs/fake_core.h"

namespace unisono::verbs {

using fake::Core;

ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = a;
  gid.raw[13] = b;
  gid.raw[14] = c;
  gid.raw[15] = d;
  return gid;
}

FakeFabricOptions fake_world(int hosts, int devices, const FakeDeviceOptions& device) {
  FakeFabricOptions options;
  options.hosts.assign(static_cast<std::size_t>(hosts),
                       std::vector<FakeDeviceOptions>(static_cast<std::size_t>(devices), device));
  return options;
}

FakeFabric::FakeFabric(FakeFabricOptions options)
    : core_(std::make_shared<Core>(std::move(options))) {}
FakeFabric::~FakeFabric() = default;

std::shared_ptr<VerbsApi> FakeFabric::api(int host) { return fake::make_fake_device(core_, host); }

void FakeFabric::fail_call(int host, FakeCall call, int nth, int error_number) {
  Core::Section section(*core_);
  core_->host(host).failures.push_back({call, nth - 1, error_number, false});
}

void FakeFabric::fail_calls_from(int host, FakeCall call, int nth, int error_number) {
  Core::Section section(*core_);
  core_->host(host).failures.push_back({call, nth - 1, error_number, true});
}

void FakeFabric::fail_next_request(int host, int device, ibv_wc_status status) {
  Core::Section section(*core_);
  core_->device(host, device).next_status = status;
}

void FakeFabric::lose_next_completion(int host, int device) {
  Core::Section section(*core_);
  core_->device(host, device).lose_completion = true;
}

void FakeFabric::tamper(int host, int device, const FakeTampering& how) {
  Core::Section section(*core_);
  fake::Device& changed = core_->device(host, device);
  changed.tampering = how;
  changed.first_message.clear();
}

void FakeFabric::set_link(int host, int device, bool up) {
  Core::Section section(*core_);
  fake::Device& changed = core_->device(host, device);
  if (changed.up == up) return;
  core_->quiesce(section);
  changed.up = up;
  core_->raise(changed, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, true);
}

void FakeFabric::break_device(int host, int device) {
  Core::Section section(*core_);
  core_->quiesce(section);
  fake::Device& broken = core_->device(host, device);
  broken.broken = true;
  core_->raise(broken, IBV_EVENT_DEVICE_FATAL, false);
}

void FakeFabric::unplug(int host) {
  Core::Section section(*core_);
  core_->quiesce(section);
  core_->host(host).unplugged = true;
}

void FakeFabric::hold(int host) {
  Core::Section section(*core_);
  core_->host(host).held = true;
  core_->quiesce(section);
}

void FakeFabric::release(int host) {
  Core::Section section(*core_);
  core_->host(host).held = false;
  core_->wake();
}

void FakeFabric::wait_until_idle() {
  Core::Section section(*core_);
  core_->wait(section, [this] { return core_->is_idle(); });
}

void FakeFabric::see_what_was_written() { core_->order_behind_moves(); }

FakeCounters FakeFabric::counters(int host) const {
  Core::Section section(*core_);
  return core_->host(host).counters;
}

std::vector<std::string> FakeFabric::complaints() const {
  Core::Section section(*core_);
  return core_->complaints();
}

}  // namespace unisono::verbs
