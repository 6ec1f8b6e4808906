// Devices, ports, events, protection domains and memory regions of the fake.
#include "tests/verbs/fake_device.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace unisono::verbs::fake {
namespace {

template <typename T>
T* failed(int error_number) {
  errno = error_number;
  return nullptr;
}

/// Whether every page is mapped with these rights, as one look at the list of mappings has it.
bool looks_mapped(const void* address, std::size_t bytes, bool writable) {
  std::uint64_t at = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t end = at + bytes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, rights) != 3) return false;
    if (last <= at) continue;
    if (first > at || rights[0] != 'r' || (writable && rights[1] != 'w')) return false;
    at = last;
  }
  return at >= end;
}

/// What pinning would find. While other threads map and unmap, the list may miss a mapping that is
/// there all the time; it does not do so again and again.
bool is_mapped(const void* address, std::size_t bytes, bool writable) {
  for (int looks = 0; looks < 20; ++looks) {
    if (looks_mapped(address, bytes, writable)) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<VerbsApi> make_fake_device(std::shared_ptr<Core> core, int host) {
  return std::make_shared<FakeDevice>(std::move(core), host);
}

int FakeDevice::obstacle(FakeCall call, const Device& device) {
  if (const int wanted = core_->failure(host_, call)) return wanted;
  return device.broken ? EIO : 0;
}

ibv_device** FakeDevice::get_device_list(int* count) {
  Section section(*core_);
  if (const int wanted = core_->failure(host_, FakeCall::kGetDeviceList))
    return failed<ibv_device*>(wanted);
  auto& devices = host().devices;
  auto** list = new ibv_device*[devices.size() + 1]();
  for (std::size_t i = 0; i < devices.size(); ++i) list[i] = devices[i].get();
  if (count != nullptr) *count = static_cast<int>(devices.size());
  ++counters().device_lists;
  return list;
}

void FakeDevice::free_device_list(ibv_device** list) {
  Section section(*core_);
  --counters().device_lists;
  delete[] list;
}

const char* FakeDevice::get_device_name(ibv_device* device) { return device->name; }

ibv_context* FakeDevice::open_device(ibv_device* device) {
  Section section(*core_);
  auto* owner = static_cast<Device*>(device);
  if (const int error = obstacle(FakeCall::kOpenDevice, *owner)) return failed<ibv_context>(error);
  auto* context = new Context{};
  context->device = device;
  context->owner = owner;
  context->cmd_fd = -1;
  context->num_comp_vectors = 1;
  context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  owner->contexts.push_back(context);
  ++counters().contexts;
  return context;
}

int FakeDevice::close_device(ibv_context* context) {
  Section section(*core_);
  auto* open = static_cast<Context*>(context);
  if (open->users > 0) return core_->refuse(EBUSY, *open->owner, "close_device: objects are alive");
  std::erase(open->owner->contexts, open);
  ::close(open->async_fd);
  delete open;
  --counters().contexts;
  return 0;
}

int FakeDevice::query_device(ibv_context* context, ibv_device_attr* attributes) {
  Section section(*core_);
  const Device& device = *static_cast<Context*>(context)->owner;
  if (const int error = obstacle(FakeCall::kQueryDevice, device)) return error;
  const FakeDeviceOptions& options = device.options;
  std::memset(attributes, 0, sizeof(*attributes));
  std::strncpy(attributes->fw_ver, "1.0.0", sizeof(attributes->fw_ver) - 1);
  attributes->max_mr_size = ~0ull;
  attributes->page_size_cap = 0xfffff000;
  attributes->max_qp = 1 << 18;
  attributes->max_qp_wr = options.qp_entries_max;
  attributes->max_sge = attributes->max_sge_rd = options.sges_max;
  attributes->max_cq = 1 << 16;
  attributes->max_cqe = options.cq_entries_max;
  attributes->max_mr = 1 << 20;
  attributes->max_pd = 1 << 16;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = options.rd_atomic_max;
  attributes->max_res_rd_atom = options.rd_atomic_max << 8;
  attributes->max_srq = 1 << 16;
  attributes->max_srq_wr = options.srq_entries_max;
  attributes->max_srq_sge = options.sges_max;
  attributes->max_pkeys = static_cast<std::uint16_t>(options.pkeys.size() + 1);
  attributes->phys_port_cnt = 1;
  return 0;
}

int FakeDevice::query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  Section section(*core_);
  const Device& device = *static_cast<Context*>(context)->owner;
  if (const int error = obstacle(FakeCall::kQueryPort, device)) return error;
  if (port != 1) return EINVAL;
  const FakeDeviceOptions& options = device.options;
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->state = device.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->phys_state = device.up ? 5 : 3;  // LinkUp, Disabled
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = options.mtu;
  attributes->gid_tbl_len = static_cast<int>(options.gids.size()) + 4;
  attributes->pkey_tbl_len = static_cast<std::uint16_t>(options.pkeys.size() + 1);
  attributes->max_msg_sz = options.message_bytes_max;
  attributes->lid = device.lid;
  attributes->link_layer = options.link_layer;
  attributes->active_width = 2;   // 4 lanes
  attributes->active_speed = 32;  // of 25 Gbit/s
  return 0;
}

int FakeDevice::query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  Section section(*core_);
  const Device& device = *static_cast<Context*>(context)->owner;
  int error = obstacle(FakeCall::kQueryPkey, device);
  const auto& pkeys = device.options.pkeys;
  const auto place = static_cast<std::size_t>(index);
  if (error == 0 && (port != 1 || index < 0 || place > pkeys.size())) error = EINVAL;
  if (error != 0) {
    errno = error;
    return -1;
  }
  // The table's last entry is an empty one, as most of a real one's are.
  *pkey = place < pkeys.size() ? __builtin_bswap16(pkeys[place]) : 0;
  return 0;
}

int FakeDevice::query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                             ibv_gid_entry* entry) {
  Section section(*core_);
  const Device& device = *static_cast<Context*>(context)->owner;
  if (const int error = obstacle(FakeCall::kQueryGidEx, device)) return error;
  const auto& gids = device.options.gids;
  if (port != 1 || index >= gids.size() + 4) return EINVAL;
  if (index >= gids.size()) return ENODATA;
  *entry = {};
  entry->gid = gids[index].gid;
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = gids[index].type;
  return 0;
}

int FakeDevice::get_async_event(ibv_context* context, ibv_async_event* event) {
  auto* open = static_cast<Context*>(context);
  {
    Section section(*core_);
    if (const int wanted = core_->failure(host_, FakeCall::kGetAsyncEvent)) {
      errno = wanted;
      return -1;
    }
  }
  while (true) {
    std::uint64_t one = 0;
    if (::read(context->async_fd, &one, sizeof(one)) != sizeof(one)) return -1;
    Section section(*core_);
    // None: it was of an object that is gone.
    if (open->events.empty()) continue;
    *event = open->events.front();
    open->events.pop_front();
    ++core_->unacknowledged()[event->element.cq];
    return 0;
  }
}

void FakeDevice::ack_async_event(ibv_async_event* event) {
  Section section(*core_);
  auto& taken = core_->unacknowledged();
  const auto found = taken.find(event->element.cq);
  if (found != taken.end() && --found->second == 0) taken.erase(found);
  core_->changed();
}

ibv_pd* FakeDevice::alloc_pd(ibv_context* context) {
  Section section(*core_);
  auto* open = static_cast<Context*>(context);
  if (const int error = obstacle(FakeCall::kAllocPd, *open->owner)) return failed<ibv_pd>(error);
  auto* pd = new Pd{};
  pd->context = context;
  ++open->users;
  ++counters().pds;
  return pd;
}

int FakeDevice::dealloc_pd(ibv_pd* pd) {
  Section section(*core_);
  auto* old = static_cast<Pd*>(pd);
  auto* open = static_cast<Context*>(pd->context);
  if (old->users > 0) return core_->refuse(EBUSY, *open->owner, "dealloc_pd: objects are alive");
  --open->users;
  --counters().pds;
  delete old;
  return 0;
}

Region* FakeDevice::add_region(Pd& pd, std::byte* memory, std::uint64_t first, std::size_t bytes,
                               int access) {
  auto* region = new Region{};
  region->context = pd.context;
  region->pd = &pd;
  region->addr = memory;
  region->length = bytes;
  region->lkey = core_->new_key();
  region->rkey = core_->new_key();  // never alike: mixing them up must show
  region->owner = static_cast<Context*>(pd.context)->owner;
  region->memory = memory;
  region->first = first;
  region->access = access;
  core_->by_lkey()[region->lkey] = region;
  core_->by_rkey()[region->rkey] = region;
  ++pd.users;
  ++counters().mrs;
  ++counters().registrations;
  counters().registered_bytes += bytes;
  return region;
}

ibv_mr* FakeDevice::reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  const bool remote_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const bool local_write = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  Section section(*core_);
  const Device& device = *static_cast<Context*>(pd->context)->owner;
  int error = obstacle(FakeCall::kRegMr, device);
  if (error == 0 && remote_write && !local_write) {
    error = core_->refuse(EINVAL, device, "reg_mr: remote write without local write");
  }
  if (error == 0 && !is_mapped(address, bytes, local_write)) {
    error = core_->refuse(EFAULT, device, "reg_mr: not mapped, or not writable");
  }
  if (error != 0) return failed<ibv_mr>(error);
  return add_region(*static_cast<Pd*>(pd), static_cast<std::byte*>(address),
                    reinterpret_cast<std::uintptr_t>(address), bytes, access);
}

ibv_mr* FakeDevice::reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                                  std::uint64_t iova, int fd, int access) {
  Section section(*core_);
  const Device& device = *static_cast<Context*>(pd->context)->owner;
  if (const int error = obstacle(FakeCall::kRegDmabufMr, device)) return failed<ibv_mr>(error);
  // Any file that can be mapped stands for GPU memory, a memfd for example.
  const auto within =
      static_cast<std::size_t>(offset % static_cast<std::uint64_t>(::getpagesize()));
  void* mapped = ::mmap(nullptr, within + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        static_cast<off_t>(offset - within));
  if (mapped == MAP_FAILED) return failed<ibv_mr>(EOPNOTSUPP);
  std::byte* const memory = static_cast<std::byte*>(mapped) + within;
  Region* region = add_region(*static_cast<Pd*>(pd), memory, iova, bytes, access);
  region->addr = nullptr;
  region->mapped_before = within;
  region->mapped = true;
  return region;
}

int FakeDevice::dereg_mr(ibv_mr* mr) {
  auto* region = static_cast<Region*>(mr);
  {
    Section section(*core_);
    if (const int wanted = core_->failure(host_, FakeCall::kDeregMr)) return wanted;
    core_->quiesce(section);
    core_->by_lkey().erase(region->lkey);
    core_->by_rkey().erase(region->rkey);
    --static_cast<Pd*>(region->pd)->users;
    --counters().mrs;
    counters().registered_bytes -= region->length;
  }
  order_acquire(region);
  const Hidden hidden(core_->options().exact_order);
  if (region->mapped) {
    ::munmap(region->memory - region->mapped_before, region->mapped_before + region->length);
  }
  delete region;
  return 0;
}

}  // namespace unisono::verbs::fake
