// Streams of two processes that wait for each other by words, and what a rank reads of its peer's.
#include "cuda/synchronisation/flag_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>

#include "cuda/driver/driver_section.h"
#include "tests/cuda/odd_world.h"
#include "tests/support/eventually.h"

namespace unisono::test {
namespace {

using device::FlagPage;

using FlagPagesOfTwo = DeviceOddWorld;

constexpr Rank kLaunchers[] = {0};

void run_two(const std::function<void(Communicator&, FlagPage&)>& body) {
  expect_success_alone([&] {
    run_device_ranks({.ranks = 2, .processes = true}, [&](Communicator& comm) {
      const auto device = std::move(*device::Device::open(driver(), 0, 1 << 20, 0));
      const cuda::DriverSection section(device->api(), device->context());
      const auto page = std::move(*FlagPage::make(*device, 2, comm.rank(), kLaunchers));
      device::PageTicket tickets[2];
      comm.all_gather(&page->pages().ticket(), tickets, sizeof tickets[0], DataType::kUint8);
      require(eventually([&] { return *page->pages().connect(tickets); }), "no page of the peer's");
      comm.barrier();
      body(comm, *page);
      comm.barrier();
    });
  });
}

// Rank 1 has made one call of two, and its stream comes to that one when all has been given up.
TEST_F(FlagPagesOfTwo, ALateWordOfAPeersUndoesNoEndOfAWait) {
  run_two([](Communicator& comm, FlagPage& page) {
    DeviceUser user;
    HeldStream held(user.stream());
    for (Rank calls = comm.rank(); calls < 2; ++calls) {
      require(page.enqueue(user.stream(), [] { return Status(); }).ok(), "a call was refused");
    }
    comm.barrier();
    page.abort();
    page.give_up(0);
    comm.barrier();
    const auto is_idle = [&] { return driver()->StreamQuery(user.stream()) == CUDA_SUCCESS; };
    if (comm.rank() == 1) {
      held.let_go();
      require(eventually(is_idle), "the late stream stands still");
    }
    comm.barrier();
    held.let_go();
    const bool has_ended = eventually(is_idle);
    page.abort();  // the stream goes on at last
    require(has_ended, "the stream waits for a call that the peer has never made");
  });
}

TEST_F(FlagPagesOfTwo, NameNoFailedPeerThatIsNone) {
  run_two([](Communicator& comm, FlagPage& page) {
    require(page.failed_peer() == -1, "a peer has failed");
    const std::span all(reinterpret_cast<std::uint32_t*>(page.pages().own()),
                        FlagPage::kBytes / sizeof(std::uint32_t));
    const auto own = static_cast<std::uint32_t>(comm.rank()) + 1;
    for (const std::uint32_t told : {own, 3u, 77u, UINT32_MAX}) {
      std::fill(all.begin(), all.end(), told);
      require(page.failed_peer() == -1, "named for " + std::to_string(told));
    }
    comm.barrier();
    page.warn_peers();
    comm.barrier();
    require(page.failed_peer() == 1 - comm.rank(), "the peer is not named");
  });
}

}  // namespace
}  // namespace unisono::test
