// How a collective is divided into pieces, without a driver: carried out on host memory, whoever
// the owners are, the pieces give what the collective promises, and no element is written twice.
#include "cuda/collectives/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

namespace unisono::device {
namespace {

struct World {
  int ranks = 2;
  std::vector<std::vector<std::uint64_t>> inputs, outputs;  // by rank
  std::vector<RankPart> parts;
  std::map<const void*, int> writes;

  World(int n, std::size_t input_count, std::size_t output_count) : ranks(n) {
    for (int r = 0; r < n; ++r) {
      inputs.emplace_back(input_count);
      outputs.emplace_back(output_count, 0);
      for (std::size_t i = 0; i < input_count; ++i) {
        inputs.back()[i] = static_cast<std::uint64_t>(r + 1) * 1'000'000 + i;
      }
    }
    for (int r = 0; r < n; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      parts.push_back({.input = reinterpret_cast<std::byte*>(inputs[rank].data()),
                       .output = reinterpret_cast<std::byte*>(outputs[rank].data())});
    }
  }

  // As the kernels would, with a sum, one launch after the other.
  void run(const cuda::DeviceWork& work) {
    for (std::uint32_t p = 0; p < work.piece_count; ++p) {
      const cuda::WorkPiece& piece = work.pieces[p];
      for (std::uint64_t i = 0; i < piece.count; ++i) {
        std::vector<std::uint64_t> in;
        for (int k = 0; k < piece.inputs; ++k) {
          in.push_back(static_cast<std::uint64_t*>(work.pointers[piece.first_input + k])[i]);
        }
        for (int j = 0; j < piece.outputs; ++j) {
          auto* const out = static_cast<std::uint64_t*>(work.pointers[piece.first_output + j]);
          const auto until = [&](int last) {
            return std::accumulate(in.begin(), in.begin() + last, std::uint64_t{0});
          };
          std::uint64_t value = 0;
          switch (piece.mode) {
            case cuda::PieceMode::kSpread:
              value = until(piece.inputs);
              break;
            case cuda::PieceMode::kPrefix:
              value = until(j + 1);
              break;
            case cuda::PieceMode::kExclusive:
              if (j == 0) continue;
              value = until(j);
              break;
            case cuda::PieceMode::kPermute:
              value = in[static_cast<std::size_t>(j)];
              break;
          }
          out[i] = value;
          ++writes[out + i];
        }
      }
    }
  }

  void run_all(CollectiveParts collective, const std::vector<Rank>& owners) {
    collective.element_bytes = sizeof(std::uint64_t);
    collective.ranks = parts;
    collective.owners = owners;
    for (Rank owner = 0; owner < ranks; ++owner) {
      for (const cuda::DeviceWork& work : pieces_of(collective, owner)) run(work);
    }
    for (const auto& [place, times] : writes) ASSERT_EQ(times, 1) << "an element twice";
  }

  std::uint64_t input(int rank, std::size_t i) const {
    return static_cast<std::uint64_t>(rank + 1) * 1'000'000 + i;
  }
  std::uint64_t sum(int last, std::size_t i) const {
    std::uint64_t total = 0;
    for (int r = 0; r < last; ++r) total += input(r, i);
    return total;
  }
};

// One rank that launches everything, some of them, all of them.
std::vector<std::vector<Rank>> owner_sets(int ranks) {
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<Rank>> sets{{0}, all};
  if (ranks > 2) sets.push_back({1, static_cast<Rank>(ranks - 1)});
  return sets;
}

class Pieces : public testing::TestWithParam<int> {
 protected:
  template <typename Check>
  void each(std::size_t input_blocks, std::size_t output_blocks, const Check& check) {
    const auto n = static_cast<std::size_t>(GetParam());
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{15},
                                    std::size_t{16}, std::size_t{17}, std::size_t{1000}}) {
      for (const std::vector<Rank>& owners : owner_sets(GetParam())) {
        World world(GetParam(), count * (input_blocks == 0 ? n : input_blocks),
                    count * (output_blocks == 0 ? n : output_blocks));
        check(world, count, owners);
      }
    }
  }
};

TEST_P(Pieces, OfAllReduceAndItsKinGiveWhatTheyPromise) {
  each(1, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kAllReduce, .count = count}, owners);
    for (const auto& output : world.outputs) {
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], world.sum(world.ranks, i));
    }
  });
  each(1, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    const Rank root = world.ranks - 1;
    world.run_all({.collective = Collective::kReduce, .root = root, .count = count}, owners);
    for (Rank r = 0; r < world.ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(world.outputs[static_cast<std::size_t>(r)][i],
                  r == root ? world.sum(world.ranks, i) : 0);
      }
    }
  });
  each(1, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kScan, .count = count}, owners);
    for (Rank r = 0; r < world.ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(world.outputs[static_cast<std::size_t>(r)][i], world.sum(r + 1, i));
      }
    }
  });
  each(1, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kExscan, .count = count}, owners);
    for (Rank r = 0; r < world.ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(world.outputs[static_cast<std::size_t>(r)][i], world.sum(r, i));
      }
    }
  });
}

TEST_P(Pieces, OfReduceScatterGiveEveryRankItsBlock) {
  each(0, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kReduceScatter, .count = count}, owners);
    for (std::size_t r = 0; r < world.outputs.size(); ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(world.outputs[r][i], world.sum(world.ranks, r * count + i));
      }
    }
  });
}

// Each rank's own displacements are what was held against its buffer.
TEST(PiecesOfReduceScatterV, ReadEachInputWhereItsRankHasTheBlocks) {
  constexpr std::uint64_t kCounts[] = {1, 1};
  constexpr std::uint64_t kPlaces[2][2] = {{0, 1}, {3, 2}};
  World world(2, 4, 1);
  for (std::size_t r = 0; r < 2; ++r) {
    world.parts[r].input_counts = kCounts;
    world.parts[r].input_displacements = kPlaces[r];
  }
  world.run_all({.collective = Collective::kReduceScatterV}, {0});
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(world.outputs[r][0], world.input(0, kPlaces[0][r]) + world.input(1, kPlaces[1][r]));
  }
}

TEST_P(Pieces, OfAllGatherGatherAndScatterPutBlocksInTheirPlaces) {
  each(1, 0, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kAllGather, .count = count}, owners);
    for (const auto& output : world.outputs) {
      for (std::size_t i = 0; i < output.size(); ++i) {
        ASSERT_EQ(output[i], world.input(static_cast<int>(i / count), i % count));
      }
    }
  });
  each(1, 0, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    world.run_all({.collective = Collective::kGather, .root = 0, .count = count}, owners);
    for (std::size_t i = 0; i < world.outputs[0].size(); ++i) {
      ASSERT_EQ(world.outputs[0][i], world.input(static_cast<int>(i / count), i % count));
    }
  });
  each(0, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    const Rank root = world.ranks - 1;
    world.run_all({.collective = Collective::kScatter, .root = root, .count = count}, owners);
    for (std::size_t r = 0; r < world.outputs.size(); ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(world.outputs[r][i], world.input(root, r * count + i));
      }
    }
  });
}

TEST_P(Pieces, OfAllToAllExchangeBlocksInPlaceToo) {
  for (const bool in_place : {false, true}) {
    each(0, 0, [&](World& world, std::size_t count, const std::vector<Rank>& owners) {
      if (in_place) {
        world.outputs = world.inputs;
        for (std::size_t r = 0; r < world.parts.size(); ++r) {
          world.parts[r].input = world.parts[r].output =
              reinterpret_cast<std::byte*>(world.outputs[r].data());
        }
      }
      world.run_all({.collective = Collective::kAllToAll, .count = count}, owners);
      for (std::size_t r = 0; r < world.outputs.size(); ++r) {
        for (std::size_t i = 0; i < world.outputs[r].size(); ++i) {
          ASSERT_EQ(world.outputs[r][i],
                    world.input(static_cast<int>(i / count), r * count + i % count));
        }
      }
    });
  }
}

TEST_P(Pieces, OfBroadcastLeaveTheRootAlone) {
  each(1, 1, [](World& world, std::size_t count, const std::vector<Rank>& owners) {
    for (std::size_t r = 0; r < world.parts.size(); ++r) {
      world.parts[r].output = world.parts[r].input;
    }
    const Rank root = world.ranks / 2;
    world.run_all({.collective = Collective::kBroadcast, .root = root, .count = count}, owners);
    for (const auto& data : world.inputs) {
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], world.input(root, i));
    }
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(world.writes.count(&world.inputs[static_cast<std::size_t>(root)][i]), 0U);
    }
  });
}

// Which outputs the pieces of owner 0 write, of an all-reduce by all.
std::vector<bool> written_by_the_first(std::size_t count, bool in_place) {
  World world(2, count, count);
  if (in_place) {
    for (RankPart& part : world.parts) part.output = part.input;
  }
  const std::vector<Rank> owners{0, 1};
  const CollectiveParts parts{.collective = Collective::kAllReduce,
                              .count = count,
                              .element_bytes = sizeof(std::uint64_t),
                              .ranks = world.parts,
                              .owners = owners};
  for (const cuda::DeviceWork& work : pieces_of(parts, 0)) world.run(work);
  std::vector<bool> written;
  for (const RankPart& part : world.parts) {
    written.push_back(std::any_of(world.writes.begin(), world.writes.end(), [&](const auto& write) {
      const auto* const place = static_cast<const std::byte*>(write.first);
      return place >= part.output && place < part.output + count * sizeof(std::uint64_t);
    }));
  }
  return written;
}

TEST(OneShot, IsForSmallAllReducesOutOfPlace) {
  const std::vector<bool> own{true, false}, all{true, true};
  EXPECT_EQ(written_by_the_first(1000, false), own);
  EXPECT_EQ(written_by_the_first(1000, true), all);
  EXPECT_EQ(written_by_the_first(16'384, false), own);
  EXPECT_EQ(written_by_the_first(16'385, false), all);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pieces, testing::Values(1, 2, 3, 5, 8, 16),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace unisono::device
