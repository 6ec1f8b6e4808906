// The streaming forms: pieces come in order and within the bound, and a callback that throws hurts
// only whom it must.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tests/objects/object_bytes.h"
#include "tests/support/rank_job.h"
#include "tests/support/same_bytes.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

// Checks every piece against what its source sends.
class Inspector {
 public:
  explicit Inspector(std::size_t bound) : bound_(bound) {}

  ObjectSink sink() {
    return [this](const ObjectPiece& piece) { look_at(piece); };
  }
  void expect_all(const std::vector<std::size_t>& sizes) const {
    EXPECT_EQ(received_.size(), sizes.size());
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      const auto found = received_.find(static_cast<Rank>(r));
      ASSERT_NE(found, received_.end()) << "nothing of rank " << r;
      EXPECT_EQ(found->second, sizes[r]);
    }
  }
  const std::map<Rank, std::uint64_t>& received() const { return received_; }

 private:
  void look_at(const ObjectPiece& piece) {
    EXPECT_LE(piece.bytes.size(), bound_);
    EXPECT_TRUE(!piece.bytes.empty() || (piece.size == 0 && !received_.contains(piece.source)));
    EXPECT_EQ(piece.offset, received_[piece.source]);
    const ObjectBytes expected = bytes_of(piece.source, piece.offset, piece.bytes.size());
    if (!same_bytes(piece.bytes, expected)) {
      const auto differs =
          std::mismatch(expected.begin(), expected.end(), piece.bytes.begin()).first;
      ADD_FAILURE() << "byte " << piece.offset + (differs - expected.begin()) << " of rank "
                    << piece.source;
    }
    received_[piece.source] += piece.bytes.size();
    EXPECT_LE(received_[piece.source], piece.size);
  }

  const std::size_t bound_;
  std::map<Rank, std::uint64_t> received_;
};

ObjectSource produced(Rank rank, std::size_t size) {
  return {size, [rank](std::uint64_t offset, std::span<std::byte> room) {
            write_bytes(rank, offset, room);
          }};
}

void check_streams(Communicator& comm, const std::vector<std::size_t>& sizes, Rank root,
                   std::size_t staging) {
  const ObjectOptions options{.staging_bytes = staging};
  const std::size_t size = sizes[static_cast<std::size_t>(comm.rank())];
  const ObjectBytes memory = object_of(comm.rank(), size);
  // Even ranks send from memory, odd ones produce.
  const ObjectSource source =
      comm.rank() % 2 == 0 ? ObjectSource(memory) : produced(comm.rank(), size);
  Inspector all(staging);
  stream_all_gather_objects(comm, source, all.sink(), options);
  all.expect_all(sizes);
  Inspector at_root(staging);
  stream_gather_objects(comm, source, root, at_root.sink(), options);
  if (comm.rank() == root) {
    at_root.expect_all(sizes);
  } else {
    EXPECT_TRUE(at_root.received().empty());
  }
  Inspector of_root(staging);
  stream_broadcast_object(comm, source, root, of_root.sink(), options);
  if (comm.rank() != root) {
    ASSERT_EQ(of_root.received().size(), 1u);
    EXPECT_EQ(of_root.received().at(root), sizes[static_cast<std::size_t>(root)]);
  } else {
    EXPECT_TRUE(of_root.received().empty());
  }
}

class Streams : public testing::TestWithParam<const char*> {};

TEST_P(Streams, DeliverEveryPieceInOrder) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      constexpr std::size_t kChunk = 1000;
      const std::size_t staging = kChunk * static_cast<std::size_t>(ranks);
      const std::vector<std::size_t> pool{kChunk, 0, 7 * kChunk + 5, 1, kChunk - 1, kChunk + 1};
      for (std::size_t shift = 0; shift < pool.size(); ++shift) {
        std::vector<std::size_t> sizes;
        for (int r = 0; r < ranks; ++r) {
          sizes.push_back(pool[(shift + static_cast<std::size_t>(r)) % pool.size()]);
        }
        check_streams(comm, sizes, static_cast<Rank>(shift) % ranks, staging);
      }
      check_streams(comm, std::vector<std::size_t>(static_cast<std::size_t>(ranks), 0), 0, staging);
    });
  }
}

TEST_P(Streams, OfManyMebibytesUseTheDefaultBound) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kBound = std::size_t{16} << 20;
    const std::vector<std::size_t> sizes{3'000'000, 20'000'001, 0};
    Inspector all(kBound);
    stream_all_gather_objects(
        comm, produced(comm.rank(), sizes[static_cast<std::size_t>(comm.rank())]), all.sink());
    all.expect_all(sizes);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Streams, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// The communicator still works, on every rank.
void expect_usable(Communicator& comm) {
  EXPECT_TRUE(comm.status()) << comm.status().message();
  int ranks[] = {1};
  comm.all_reduce(ranks, ops::sum);
  EXPECT_EQ(ranks[0], comm.size());
}

constexpr ObjectOptions kSmallChunks{.staging_bytes = 300, .size_limit = 0, .call = {}};

TEST(Streams, RethrowWhatASinkThrowsOnItsRankAlone) {
  for (const bool at_once : {true, false}) {
    run_ranks(3, "auto", [&](Communicator& comm) {
      Inspector all(300);
      int calls_after = -1;
      const ObjectSink throwing = [&](const ObjectPiece& piece) {
        if (++calls_after > 0 || at_once || piece.offset >= 500) {
          calls_after = 0;
          throw std::logic_error("on purpose");
        }
        calls_after = -1;
      };
      const ObjectBytes object = object_of(comm.rank(), 2000);
      if (comm.rank() == 1) {
        EXPECT_THROW(stream_all_gather_objects(comm, object, throwing, kSmallChunks),
                     std::logic_error);
        EXPECT_EQ(calls_after, 0) << "it was called after it had thrown";
      } else {
        stream_all_gather_objects(comm, object, all.sink(), kSmallChunks);
        all.expect_all({2000, 2000, 2000});
      }
      expect_usable(comm);
    });
  }
}

TEST(Streams, TellEveryRankOfAProducerThatThrows) {
  for (const Rank root : {0, 1}) {
    run_ranks(3, "auto", [&](Communicator& comm) {
      const ObjectSource throwing(5000, [](std::uint64_t offset, std::span<std::byte> room) {
        if (offset > 2000) throw std::logic_error("on purpose");
        write_bytes(1, offset, room);
      });
      const ObjectBytes memory = object_of(comm.rank(), 5000);
      const ObjectSource source = comm.rank() == 1 ? throwing : ObjectSource(memory);
      const ObjectSink ignore = [](const ObjectPiece&) {};
      const auto calls = {std::function<void()>([&] {
                            stream_gather_objects(comm, source, root, ignore, kSmallChunks);
                          }),
                          std::function<void()>([&] {
                            stream_all_gather_objects(comm, source, ignore, kSmallChunks);
                          }),
                          std::function<void()>([&] {
                            stream_broadcast_object(comm, source, 1, ignore, kSmallChunks);
                          })};
      for (const auto& call : calls) {
        if (comm.rank() == 1) {
          EXPECT_THROW(call(), std::logic_error);
        } else {
          const Error error = error_of(call);
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
          EXPECT_EQ(error.rank(), 1);
          EXPECT_THAT(error.what(), HasSubstr("the producer of rank 1 threw"));
        }
        expect_usable(comm);
      }
    });
  }
}

TEST(Streams, SendZerosInPlaceOfWhatAProducerDidNotMake) {
  run_ranks(2, "auto", [&](Communicator& comm) {
    const ObjectSource throwing(1000, [](std::uint64_t, std::span<std::byte> room) {
      room[0] = std::byte{42};
      throw std::logic_error("on purpose");
    });
    const ObjectBytes nothing;
    const ObjectSource source = comm.rank() == 1 ? throwing : ObjectSource(nothing);
    std::size_t others = 0;
    const ObjectSink count = [&](const ObjectPiece& piece) {
      for (const std::byte byte : piece.bytes) others += byte != std::byte{0} ? 1 : 0;
    };
    EXPECT_ANY_THROW(stream_gather_objects(comm, source, 0, count, kSmallChunks));
    EXPECT_EQ(others, 0u);
  });
}

TEST(Streams, GiveTheOthersAllOfARankWhoseSinkThrew) {
  run_ranks(2, "auto", [&](Communicator& comm) {
    Inspector all(300);
    if (comm.rank() == 0) {
      const ObjectSink throwing = [](const ObjectPiece&) { throw 42; };
      EXPECT_THROW(stream_all_gather_objects(comm, produced(0, 5000), throwing, kSmallChunks), int);
    } else {
      stream_all_gather_objects(comm, produced(1, 100), all.sink(), kSmallChunks);
      all.expect_all({5000, 100});
    }
    expect_usable(comm);
  });
}

TEST(Streams, EndOnEveryRankWhenTheCommunicatorFails) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const ObjectSource source(50'000, [&](std::uint64_t offset, std::span<std::byte> room) {
      if (comm.rank() == 1 && offset > 20'000) comm.abort("enough");
      write_bytes(comm.rank(), offset, room);
    });
    const ObjectSink ignore = [](const ObjectPiece&) {};
    const Error error =
        error_of([&] { stream_gather_objects(comm, source, 0, ignore, kSmallChunks); });
    EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("enough"));
  });
}

// A callback's own words come before those of a failure that follows.
TEST(Streams, RethrowACallbacksExceptionAlsoWhenTheCommunicatorFails) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const ObjectBytes object = object_of(comm.rank(), 50'000);
    const ObjectSink throwing = [&](const ObjectPiece&) {
      comm.abort("enough");
      throw std::logic_error("on purpose");
    };
    const ObjectSink ignore = [](const ObjectPiece&) {};
    if (comm.rank() == 0) {
      EXPECT_THROW(stream_all_gather_objects(comm, object, throwing, kSmallChunks),
                   std::logic_error);
    } else {
      EXPECT_EQ(
          error_of([&] { stream_all_gather_objects(comm, object, ignore, kSmallChunks); }).code(),
          ErrorCode::kAborted);
    }
  });
}

// In the last round, when only the word about producers is still to be exchanged.
TEST(Streams, RethrowACallbacksExceptionAlsoWhenTheLastWordFails) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const ObjectSink throwing = [&](const ObjectPiece&) {
      comm.abort("enough");
      throw std::logic_error("on purpose");
    };
    const ObjectSink ignore = [](const ObjectPiece&) {};
    const ObjectSource object = produced(comm.rank(), 10);
    if (comm.rank() == 0) {
      EXPECT_THROW(stream_gather_objects(comm, object, 0, throwing), std::logic_error);
    } else {
      EXPECT_EQ(error_of([&] { stream_gather_objects(comm, object, 0, ignore); }).code(),
                ErrorCode::kAborted);
    }
  });
}

}  // namespace
}  // namespace unisono::test
