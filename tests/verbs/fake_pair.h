// Two hosts of a fake fabric with one queue pair between them: what most claims about the fake
// begin with. Used by one thread.
#pragma once

#include <cstddef>

#include "tests/support/seed.h"
#include "tests/verbs/fake_fixture.h"

namespace unisono::verbs::test {

inline constexpr std::size_t kHalf = 64 * 1024;

inline FakeFabricOptions seeded(FakeFabricOptions options) {
  options.seed = unisono::test::seed();
  return options;
}

inline void fill(Fixture& fixture, std::size_t offset, std::size_t bytes, unsigned start) {
  for (std::size_t i = 0; i < bytes; ++i) {
    fixture.memory[offset + i] = static_cast<std::byte>((start + i * 7) & 0xff);
  }
}
inline bool holds(const Fixture& fixture, std::size_t offset, std::size_t bytes, unsigned start) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (fixture.memory[offset + i] != static_cast<std::byte>((start + i * 7) & 0xff)) return false;
  }
  return true;
}

/// Two hosts with one queue pair between them.
struct Pair {
  explicit Pair(const FakeFabricOptions& options = fake_world(2, 1), const Wiring& wiring = {},
                const RigSizes& sizes = {})
      : fabric(seeded(options)),
        a(fabric.api(0), 0, 2 * kHalf, sizes),
        b(fabric.api(1), 0, 2 * kHalf, sizes),
        to_b(a.make_qp()),
        to_a(b.make_qp()) {
    connect(a, to_b, b, to_a, wiring);
  }
  Request write(std::size_t offset, std::size_t bytes) {
    return {.pieces = {a.piece(offset, bytes)}, .remote = b.address(offset), .rkey = b.mr->rkey};
  }
  Request read(std::size_t offset, std::size_t bytes) {
    Request request = write(offset, bytes);
    request.opcode = IBV_WR_RDMA_READ;
    return request;
  }
  Request announce(std::size_t offset, std::size_t bytes, std::uint32_t immediate) {
    Request request = write(offset, bytes);
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.immediate = immediate;
    return request;
  }
  ibv_wc_status status_of(const Request& request) {
    EXPECT_EQ(post(a, to_b, request), 0);
    const auto done = a.poll(1);
    return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
  }

  FakeFabric fabric;
  Fixture a;
  Fixture b;
  ibv_qp* to_b;
  ibv_qp* to_a;
};

}  // namespace unisono::verbs::test
