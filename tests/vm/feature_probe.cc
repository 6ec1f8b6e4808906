// What a verbs device must be able to do for the verbs transport: each test is one feature, tried
// with plain libibverbs. Where one fails, the device lacks it and no failure of the transport that
// needs it means anything. Tried on the first two devices of this machine, or twice on the only
// one. Here: what device and kernel offer, and registered memory.
#include "tests/vm/feature_probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <thread>

namespace unisono::vm {
namespace {

TEST_F(DeviceFeature, HasARoceAddressOfIpv4OrIsInfiniband) {
  for (const std::string& name : names_) {
    const Device device = open_device(name);
    EXPECT_EQ(device.port.state, IBV_PORT_ACTIVE) << name;
    if (device.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      EXPECT_TRUE(device.gid_is_ipv4) << name;
    }
    std::printf("%s: mtu %d, messages up to %u bytes, %d work requests, %d regions, %d pieces\n",
                name.c_str(), 128 << device.port.active_mtu, device.port.max_msg_sz,
                device.attributes.max_qp_wr, device.attributes.max_mr, device.attributes.max_sge);
  }
}

TEST_F(DeviceFeature, SendsAtLeast64BytesInline) {
  const Owned<ibv_cq> cq(ibv_create_cq(first_.context.get(), 16, nullptr, nullptr, 0));
  std::uint32_t most = 0;
  for (std::uint32_t bytes = 32; bytes <= 4096; bytes *= 2) {
    if (make_queue_pair(first_, cq.get(), {.inline_bytes = bytes})) most = bytes;
  }
  EXPECT_GE(most, 64u);
  std::printf("inline up to %u bytes at least\n", most);
}

TEST_F(DeviceFeature, HasUnreliableQueuePairs) {
  const Owned<ibv_cq> cq(ibv_create_cq(first_.context.get(), 16, nullptr, nullptr, 0));
  EXPECT_TRUE(make_queue_pair(first_, cq.get(), {}, nullptr, IBV_QPT_UC));
  EXPECT_TRUE(make_queue_pair(first_, cq.get(), {}, nullptr, IBV_QPT_UD));
}

TEST_F(DeviceFeature, HasExtendedQueues) {
  ibv_cq_init_attr_ex wanted{.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
  ibv_cq_ex* extended = ibv_create_cq_ex(first_.context.get(), &wanted);
  ASSERT_NE(extended, nullptr);
  const Owned<ibv_cq> cq(ibv_cq_ex_to_cq(extended));
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = cq.get();
  attributes.recv_cq = cq.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {8, 8, 1, 1, 0};
  attributes.pd = first_.pd.get();
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND;
  EXPECT_TRUE(Owned<ibv_qp>(ibv_create_qp_ex(first_.context.get(), &attributes)));
}

TEST_F(DeviceFeature, RegistersThousandsOfRegions) {
  const Memory memory(kMegabyte);
  std::vector<Owned<ibv_mr>> regions;
  for (std::size_t i = 0; i < 4096; ++i) {
    regions.push_back(register_memory(first_, memory.data() + i % 256 * 4096, 4096));
    ASSERT_TRUE(regions.back()) << i << ": " << std::strerror(errno);
  }
}

TEST_F(DeviceFeature, AcceptsRelaxedOrdering) {
  const Memory memory(kMegabyte);
  EXPECT_TRUE(register_memory(first_, memory.data(), memory.bytes(),
                              kAllAccess | IBV_ACCESS_RELAXED_ORDERING));
}

// Told, not demanded: the transport does without them.
TEST_F(DeviceFeature, TellsOfItsOptionalRegistrations) {
  const Memory memory(kMegabyte);
  const auto told = [](const char* what, bool there) {
    std::printf("%s: %s\n", what, there ? "yes" : std::strerror(errno));
  };
  told("on-demand paging", register_memory(first_, memory.data(), memory.bytes(),
                                           kAllAccess | IBV_ACCESS_ON_DEMAND) != nullptr);
  told("memory of other devices (dmabuf)",
       Owned<ibv_mr>(ibv_reg_dmabuf_mr(first_.pd.get(), 0, 4096, 0, 0, kAllAccess)) != nullptr);
  told("memory windows", Owned<ibv_mw>(ibv_alloc_mw(first_.pd.get(), IBV_MW_TYPE_2)) != nullptr);
}

TEST_F(DeviceFeature, RefusesRegionsBeyondTheMemlockLimit) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{kMegabyte, kMegabyte};
    constexpr unsigned kNobody = 65534;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) {
      _exit(2);
    }
    const Device device = open_device(names_[0]);
    const Memory memory(4 * kMegabyte);
    const bool small = register_memory(device, memory.data(), kMegabyte / 2) != nullptr;
    const bool large = register_memory(device, memory.data(), 4 * kMegabyte) != nullptr;
    _exit(small && !large && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// What keeps registrations of freed memory from being used again.
TEST(KernelFeature, TellsThatMemoryWasUnmapped) {
  constexpr std::size_t kBytes = 1 << 20;
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) GTEST_SKIP() << "userfaultfd: " << std::strerror(errno);
  uffdio_api api{.api = UFFD_API, .features = UFFD_FEATURE_EVENT_UNMAP, .ioctls = 0};
  ASSERT_EQ(ioctl(fd, UFFDIO_API, &api), 0) << std::strerror(errno);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  uffdio_register watched{.range = {.start = address, .len = kBytes},
                          .mode = UFFDIO_REGISTER_MODE_MISSING,
                          .ioctls = 0};
  ASSERT_EQ(ioctl(fd, UFFDIO_REGISTER, &watched), 0) << std::strerror(errno);
  // munmap() waits until somebody has read the message.
  std::thread unmapper([memory] { munmap(memory, kBytes); });
  uffd_msg message{};
  const bool told = readable(fd, milliseconds(10'000)) &&
                    read(fd, &message, sizeof message) == static_cast<ssize_t>(sizeof message);
  close(fd);
  unmapper.join();
  ASSERT_TRUE(told);
  EXPECT_EQ(message.event, UFFD_EVENT_UNMAP);
  EXPECT_EQ(message.arg.remove.start, address);
  EXPECT_EQ(message.arg.remove.end, address + kBytes);
}

}  // namespace
}  // namespace unisono::vm
