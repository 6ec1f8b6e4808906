// A rank that is the test itself: authenticated like any other, with a stream transport and queue
// pairs of its own, but free to say and write what no correct rank would. Used by one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/verbs/fake_fixture.h"
#include "tests/verbs/transport_fixture.h"
#include "transports/verbs/hello.h"
#include "transports/verbs/record.h"

namespace unisono::verbs::test {

class Impostor final : public FrameSink {
 public:
  Impostor(Rank rank, int size);

  /// As of a rank with an Ethernet port.
  std::string address() const;
  /// A world in which it is this rank.
  WorldShape shape() const;
  /// Connects to the others of this world and takes part in its turns.
  void join(World& world);

  void say(Rank to, std::string_view message);
  void send_frame(Rank to, FrameHeader header, std::size_t bytes);
  /// Goodbye over the stream transport.
  void leave();
  /// The same without a word.
  void die();
  /// Until `from` has said hello; of the latest epoch.
  bool await_hello(World& world, Rank from);
  const Hello& hello_of(Rank from) { return hellos_[from]; }
  bool was_given_up_by(Rank from) const { return failed_.count(from) > 0; }

  /// A right answer to the hello of `victim`, over a queue pair on this rank's first port.
  Hello right_hello(World& world, Rank victim);
  /// Meets the victim as a correct rank would.
  bool meet(World& world, Rank victim);
  /// One RDMA write of the first bytes of `fixture->memory`.
  void write(std::uint64_t address, std::uint32_t key, std::size_t bytes);
  void write(std::uint64_t address, std::uint32_t key, std::size_t bytes, std::uint32_t immediate);
  void immediate(std::uint32_t bits) { write(0, 0, 0, bits); }
  void read(std::uint64_t address, std::uint32_t key, std::size_t bytes);

  std::unique_ptr<Fixture> fixture;

  Placement place(Rank peer, const FrameHeader& header) override;
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank peer, const FrameHeader& header) override;
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}

 private:
  void connect(const QueuePairEnd& peer);

  Rank rank_;
  int size_;
  std::unique_ptr<Transport> transport_;
  std::map<Rank, std::vector<std::byte>> arriving_;
  std::map<Rank, Hello> hellos_;
  std::map<Rank, std::string> failed_;
  std::vector<std::unique_ptr<std::string>> said_;
  ibv_qp* qp_ = nullptr;
};

}  // namespace unisono::verbs::test
