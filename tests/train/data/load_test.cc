// Three ways to load, over one to four ranks, and results gathered in the order of the samples.
#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <numeric>

#include "tests/train/data/files.h"
#include "tests/train/data/toy_source.h"
#include "train/data/exchange.h"
#include "unisono/objects.h"
#include "unisono/train/loader.h"
#include "unisono/unisono.hpp"

namespace unisono::train::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Indices = std::vector<std::size_t>;

const SpawnOptions kSpawn{.timeout = std::chrono::seconds(20)};

Indices counted(std::size_t size) {
  Indices indices(size);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

TEST(LoadRange, GivesTheLastRankWhatIsLeft) {
  const auto sizes = [](std::size_t samples, int ranks) {
    Indices all;
    std::size_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const LoadRange range = load_range(samples, {ranks, rank});
      EXPECT_EQ(range.begin, end);
      end = range.end;
      all.push_back(range.end - range.begin);
    }
    EXPECT_EQ(end, samples);
    return all;
  };
  EXPECT_THAT(sizes(8, 4), ElementsAre(3, 3, 2, 0));
  EXPECT_THAT(sizes(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(sizes(0, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(sizes(11, 2), ElementsAre(6, 5));
  EXPECT_THAT(sizes(10, 1), ElementsAre(10));
  for (std::size_t samples = 0; samples < 30; ++samples) {
    for (int ranks = 1; ranks < 9; ++ranks) sizes(samples, ranks);
  }
}

TEST(LoadRange, RefusesARankThatIsNone) {
  for (const RankPlace place : {RankPlace{0, 0}, RankPlace{2, 2}, RankPlace{2, -1}}) {
    EXPECT_THROW(load_range(8, place), std::invalid_argument) << place.rank;
  }
}

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, GatherEverySampleInOrderAndReadEachOnce) {
  for (const std::size_t size : {0u, 1u, 3u, 8u, 500u}) {
    const auto source = std::make_shared<ToySource>(size);
    spawn(
        GetParam(),
        [&](Communicator& comm) {
          // A few bytes per round: the exchange takes many.
          const auto data = load(source, &comm, {.staging_bytes = 32});
          EXPECT_EQ(indices_in(*data), counted(size));
          const LoadReport report = data->report();
          const LoadRange range = load_range(size, {comm.size(), comm.rank()});
          EXPECT_EQ(report.read, range.end - range.begin);
          EXPECT_EQ(report.samples, size);
          EXPECT_GE(report.peak_bytes, report.held_bytes);
          for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(data->length(i), 4 + i % 7);
        },
        kSpawn);
    const auto read = source->read();
    EXPECT_EQ(Indices(read.begin(), read.end()), counted(size));
  }
}

// What is left differs by rank: the first of two or more keeps nothing at all.
TEST_P(Ranks, GatherWhatTheFilterLeaves) {
  const auto source = std::make_shared<ToySource>(300);
  Indices expected;
  for (std::size_t i = 160; i < 300; i += 3) expected.push_back(i);
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const auto data = load(source, &comm,
                               {.keep =
                                    [](std::size_t index, auto record) {
                                      EXPECT_EQ(ToySource::index_of(record), index);
                                      return index >= 160 && (index - 160) % 3 == 0;
                                    },
                                .staging_bytes = 100});
        EXPECT_EQ(indices_in(*data), expected);
        EXPECT_THAT(data->describe(), HasSubstr("47 of toy of 300"));
      },
      kSpawn);
}

TEST_P(Ranks, AllLearnWhichRankCouldNotRead) {
  const auto source = std::make_shared<ToySource>(40);
  source->failing = 39;
  int last = 0;  // the rank that reads sample 39
  while (load_range(40, {GetParam(), last}).end < 40) ++last;
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        EXPECT_THAT(thrown_by([&] { load(source, &comm, {}); }),
                    HasSubstr("rank " + std::to_string(last) +
                              " could not load its samples: sample 39 burnt"));
        // The communicator goes on.
        comm.barrier();
      },
      kSpawn);
}

TEST_P(Ranks, RefuseDifferentDataSets) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const auto source = std::make_shared<ToySource>(comm.rank() == 1 ? 41 : 40);
        for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
          EXPECT_THAT(thrown_by([&] { load(source, &comm, {.mode = mode}); }),
                      HasSubstr("it sees toy of 41, rank 0 toy of 40"))
              << name_of(mode);
        }
      },
      kSpawn);
}

// Of which rank 1 has the second, and all others have the first.
void expect_refusal(const std::array<std::shared_ptr<const SampleSource>, 2>& sources, int ranks) {
  ASSERT_EQ(sources[0]->describe(), sources[1]->describe());
  spawn(
      ranks,
      [&](Communicator& comm) {
        const auto& source = sources[comm.rank() == 1 ? 1 : 0];
        for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
          EXPECT_THAT(thrown_by([&] { load(source, &comm, {.mode = mode}); }),
                      HasSubstr("rank 1 could not load its samples: it sees " + source->describe() +
                                ", rank 0 others of that kind"))
              << name_of(mode);
        }
      },
      kSpawn);
}

TEST_P(Ranks, RefuseTextsOfTheSameSize) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const TemporaryFolder folder;
  write_file(folder / "one", "abcabcabc");
  write_file(folder / "swapped", "abcabcacb");
  write_file(folder / "replaced", "xbcxbcxbc");
  const auto open = [&](const std::string& name, TextOptions options = {}) {
    options.paths = {folder / name};
    options.context = 2;
    return open_text(options);
  };
  expect_refusal({open("one"), open("swapped")}, GetParam());
  expect_refusal({open("one"), open("replaced")}, GetParam());
  expect_refusal({open("one", {.stride = 4}), open("one", {.stride = 5})}, GetParam());
}

TEST_P(Ranks, RefuseImagesOfTheSameSize) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& images,
                        const std::string& labels, IdxOptions options = {}) {
    options.directory = folder / name + "/same";
    std::filesystem::create_directories(options.directory);
    write_file(options.directory + "/train-images-idx3-ubyte", images);
    write_file(options.directory + "/train-labels-idx1-ubyte", labels);
    return open_idx(options);
  };
  std::string images = toy_images(20), labels = toy_labels(20);
  const auto source = open("one", images, labels);
  expect_refusal({source, open("scaled", images, labels, {.mean = 0.5F})}, GetParam());
  std::swap(labels[8], labels[9]);
  expect_refusal({source, open("labels", images, labels)}, GetParam());
  ++images.back();
  expect_refusal({source, open("images", images, toy_labels(20))}, GetParam());
}

TEST_P(Ranks, AllLearnWhichRankCannotTellItsDataSetFromOthers) {
  class Unreadable : public ToySource {
   public:
    Unreadable() : ToySource(40) {}
    std::uint64_t fingerprint() const override { throw std::runtime_error("all are burnt"); }
  };
  const auto last = static_cast<Rank>(GetParam() - 1);
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const std::shared_ptr<const SampleSource> source =
            comm.rank() == last ? std::make_shared<Unreadable>() : std::make_shared<ToySource>(40);
        for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
          EXPECT_THAT(thrown_by([&] { load(source, &comm, {.mode = mode}); }),
                      HasSubstr("rank " + std::to_string(last) +
                                " could not load its samples: all are burnt"))
              << name_of(mode);
        }
      },
      kSpawn);
}

TEST_P(Ranks, MayHaveTheSameDataSetInFoldersOfOtherNames) {
  class NamedSource : public ToySource {
   public:
    explicit NamedSource(Rank rank) : ToySource(40), name_("folder " + std::to_string(rank)) {}
    std::string describe() const override { return name_; }

   private:
    std::string name_;
  };
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const auto source = std::make_shared<NamedSource>(comm.rank());
        for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
          EXPECT_EQ(load(source, &comm, {.mode = mode})->size(), 40u) << name_of(mode);
        }
      },
      kSpawn);
}

TEST_P(Ranks, LoadLazilyOnlyTheirOwnSamples) {
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const auto source = std::make_shared<ToySource>(200);
        const auto data = load(source, &comm, {.mode = LoadMode::kLazy});
        EXPECT_TRUE(source->read().empty());
        DistributedSampler sampler(200, {comm.size(), comm.rank()});
        Loader loader(*data, sampler, {.batch_samples = 16, .workers = 2});
        std::multiset<std::size_t> expected;
        for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
          loader.begin(epoch);
          Indices given;
          while (const std::optional<Batch> batch = loader.next()) {
            for (std::size_t i = 0; i < batch->samples(); ++i) {
              EXPECT_EQ(batch->inputs.values()[2 * i], static_cast<float>(batch->indices[i]));
              given.push_back(batch->indices[i]);
            }
          }
          EXPECT_EQ(given, sampler.indices());
          // One rank's epochs have the same samples: they are still held.
          const std::set<std::size_t> mine(given.begin(), given.end());
          if (epoch == 0 || comm.size() > 1) expected.insert(mine.begin(), mine.end());
          EXPECT_EQ(source->read(), expected);
        }
        EXPECT_EQ(data->report().read, expected.size());
        EXPECT_LE(data->report().held_bytes, 2 * sampler.size() * (10 + 16));
      },
      kSpawn);
}

TEST_P(Ranks, GetResultsInTheOrderOfTheSamples) {
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        for (std::size_t total = 1; total <= 13; ++total) {
          const RankPlace place{comm.size(), comm.rank()};
          const EvaluationSampler exact(total, place);
          const DistributedSampler padded(total, place, {.shuffle = false});
          for (const Indices& mine : {exact.indices(), padded.indices()}) {
            std::vector<float> squares;
            std::vector<bool> are_odd;
            for (const std::size_t index : mine) {
              squares.push_back(static_cast<float>(index * index));
              are_odd.push_back(index % 2 == 1);
            }
            const std::vector<float> all = gather_in_order(comm, squares, total);
            const std::vector<bool> all_odd = gather_in_order(comm, are_odd, total);
            ASSERT_EQ(all.size(), total);
            ASSERT_EQ(all_odd.size(), total);
            for (std::size_t i = 0; i < total; ++i) {
              ASSERT_EQ(all[i], static_cast<float>(i * i));
              ASSERT_EQ(all_odd[i], i % 2 == 1);
            }
          }
        }
        EXPECT_TRUE(gather_in_order(comm, std::vector<double>{}, 0).empty());
      },
      kSpawn);
}

TEST_P(Ranks, RefuseResultsThatAreNotAll) {
  const int last = GetParam() - 1;
  spawn(
      GetParam(),
      [&](Communicator& comm) {
        const std::size_t total = 10 * static_cast<std::size_t>(comm.size());
        const std::vector<int> mine(comm.rank() == last ? 9 : 10);
        EXPECT_THAT(thrown_by<std::invalid_argument>([&] { gather_in_order(comm, mine, total); }),
                    HasSubstr("rank " + std::to_string(last) + " has 9 results where its share"));
        comm.barrier();
      },
      kSpawn);
}

// Rank 1 speaks the words of a loading rank by hand.
class Liar {
 public:
  explicit Liar(Communicator& comm) : comm_(comm) {}
  void announce(std::uint64_t samples, std::uint64_t bytes) {
    all_gather_values(comm_, std::array{samples, bytes});
  }
  // What it sends is refused, here too.
  template <typename T>
  void expect_refused(const std::vector<T>& list) {
    EXPECT_THROW(all_gather_list(comm_, list, {.size_limit = 1 << 20}), Error);
  }

 private:
  Communicator& comm_;
};

template <typename Lie>
void expect_lie_is_told(const std::string& text, const Lie& lie) {
  spawn(
      2,
      [&](Communicator& comm) {
        const ToySource source(8);
        if (comm.rank() == 1) {
          Liar liar(comm);
          lie(liar, comm);
        } else {
          Records mine;
          source.load(counted(5), [&](std::size_t, auto record) { mine.add(record); });
          EXPECT_THAT(thrown_by<std::exception>(
                          [&] { gather_records(comm, mine, lengths_of(mine), source, 1 << 20); }),
                      HasSubstr(text));
        }
        comm.barrier();
      },
      kSpawn);
}

TEST(Gathering, OfMoreThanWasToBeReadNamesTheRank) {
  expect_lie_is_told("rank 1 announces 4 samples of 16 bytes where it read at most 3",
                     [](Liar& liar, Communicator&) { liar.announce(4, 16); });
}

TEST(Gathering, OfMoreThanWasAnnouncedIsRefusedBeforeItIsSent) {
  expect_lie_is_told("the object of rank 1 has 4000 bytes; the limit of rank 0 is 20",
                     [](Liar& liar, Communicator&) {
                       liar.announce(3, 20);
                       liar.expect_refused(std::vector<std::uint32_t>(1000));
                     });
  expect_lie_is_told("the object of rank 1 has 5000 bytes; the limit of rank 0 is",
                     [](Liar& liar, Communicator& comm) {
                       liar.announce(3, 20);
                       all_gather_list(comm, std::vector<std::uint32_t>(3, 5));
                       liar.expect_refused(std::vector<std::uint8_t>(5000));
                     });
}

TEST(Gathering, OfLengthsThatAreNotThoseAnnouncedNamesTheRank) {
  expect_lie_is_told("rank 1 announced 3 samples of 20 bytes and sent the lengths of 3 of 27",
                     [](Liar&, Communicator& comm) {
                       Liar(comm).announce(3, 20);
                       all_gather_list(comm, std::vector<std::uint32_t>(3, 9));
                       all_gather_list(comm, std::vector<std::uint8_t>(20));
                     });
}

INSTANTIATE_TEST_SUITE_P(OneToFour, Ranks, testing::Values(1, 2, 3, 4));

TEST(LoadLocal, ReadsEverythingWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 50}) {
    const auto source = std::make_shared<ToySource>(37);
    const auto data = load(source, nullptr, {.mode = LoadMode::kLocal, .threads = threads});
    EXPECT_EQ(indices_in(*data), counted(37));
    EXPECT_EQ(source->read().size(), 37u);
    EXPECT_EQ(data->report().read, 37u);
    EXPECT_EQ(data->report().received_bytes, 0u);
  }
}

TEST(LoadLocal, SaysWhatWentWrongInAThread) {
  const auto source = std::make_shared<ToySource>(37);
  source->failing = 30;
  for (const int threads : {1, 4}) {
    EXPECT_THAT(
        thrown_by([&] { load(source, nullptr, {.mode = LoadMode::kLocal, .threads = threads}); }),
        HasSubstr("sample 30 burnt"));
  }
}

TEST(LoadLocal, TellsItsProgress) {
  const auto source = std::make_shared<ToySource>(1000);
  for (const int threads : {1, 3}) {
    std::size_t last = 0, calls = 0;
    load(source, nullptr,
         {.mode = LoadMode::kLocal, .threads = threads, .progress = [&](LoadProgress progress) {
            EXPECT_GT(progress.done, last);
            EXPECT_EQ(progress.total, 1000u);
            last = progress.done;
            ++calls;
          }});
    EXPECT_EQ(last, 1000u);
    EXPECT_EQ(calls, 100u);
  }
}

TEST(LoadLazy, RefusesWhatNeedsAllSamplesWithTheReason) {
  const auto source = std::make_shared<ToySource>(20);
  const auto refusal = [&](LoadOptions options) {
    options.mode = LoadMode::kLazy;
    return thrown_by<std::invalid_argument>([&] { load(source, nullptr, options); });
  };
  EXPECT_THAT(refusal({.sort_batches = true}),
              HasSubstr("a rank reads only its own samples and does not know how long the others"));
  EXPECT_THAT(refusal({.keep = [](auto, auto) { return true; }}), HasSubstr("filtered"));
  const auto data = load(source, nullptr, {.mode = LoadMode::kLazy});
  EXPECT_THAT(thrown_by<std::out_of_range>([&] {
                SortedBatchSampler(*data, {1, 0});
              }),
              HasSubstr("lazy loading reads only the samples"));
  data->prepare(Indices{3, 1, 3});
  EXPECT_NO_THROW(make_batch(*data, Indices{1, 3}));
  EXPECT_THROW(make_batch(*data, Indices{2}), std::out_of_range);
}

TEST(LoadLazy, HoldsNothingAfterAFailureAndRecovers) {
  const auto source = std::make_shared<ToySource>(20);
  const auto data = load(source, nullptr, {.mode = LoadMode::kLazy});
  source->failing = 7;
  EXPECT_THAT(thrown_by([&] { data->prepare(Indices{5, 6, 7}); }), HasSubstr("sample 7 burnt"));
  EXPECT_THROW(make_batch(*data, Indices{5}), std::out_of_range);
  source->failing = 100;
  data->prepare(Indices{5, 6, 7});
  EXPECT_NO_THROW(make_batch(*data, Indices{5, 7}));
}

TEST(LoadOptions, ThatDoNotGoTogetherAreRefused) {
  const auto source = std::make_shared<ToySource>(20);
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { load(source, nullptr, {}); }),
              HasSubstr("needs a communicator"));
  EXPECT_THAT(thrown_by<std::invalid_argument>(
                  [&] { load(source, nullptr, {.mode = LoadMode::kLocal, .threads = 0}); }),
              HasSubstr("0 threads"));
  EXPECT_THROW(load(nullptr, nullptr, {.mode = LoadMode::kLocal}), std::invalid_argument);
}

TEST(LoadMode, IsWrittenAsItIsSaid) {
  for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
    LoadMode parsed = LoadMode::kLazy;
    EXPECT_TRUE(parse(name_of(mode), &parsed));
    EXPECT_EQ(parsed, mode);
  }
  LoadMode mode = LoadMode::kLocal;
  EXPECT_FALSE(parse("eager", &mode));
  EXPECT_EQ(mode, LoadMode::kLocal);
}

// The whole way: compressed images, four ranks, the same batches whichever way they came.
TEST(FashionMnist, IsTheSameWhicheverWayItIsLoaded) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const auto source = open_idx({.is_test = true});
  const auto reference = load(source, nullptr, {.mode = LoadMode::kLocal});
  spawn(
      4,
      [&](Communicator& comm) {
        for (const LoadMode mode : {LoadMode::kGather, LoadMode::kLazy}) {
          const auto data = load(source, &comm, {.mode = mode});
          DistributedSampler sampler(10000, {comm.size(), comm.rank()});
          Loader loader(*data, sampler, {.batch_samples = 500});
          loader.begin(1);
          while (const std::optional<Batch> batch = loader.next()) {
            const Batch expected = make_batch(*reference, batch->indices);
            ASSERT_EQ(batch->targets, expected.targets);
            ASSERT_TRUE(std::equal(expected.inputs.values().begin(), expected.inputs.values().end(),
                                   batch->inputs.values().begin()));
          }
          EXPECT_EQ(data->report().held_bytes,
                    mode == LoadMode::kLazy ? 2500u * (785 + 16) : 10000u * (785 + 8));
        }
      },
      kSpawn);
}

}  // namespace
}  // namespace unisono::train::test
