// Checkpoint files: round trips, damage, a process killed at every stage of a save, a full disk.
#include "unisono/train/checkpoint.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "tests/train/data/files.h"
#include "train/data/checkpoint_file.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train::test {
namespace {

using testing::HasSubstr;

Checkpoint toy(float value, std::size_t count = 6) {
  return {.model = "mlp 2-3",
          .parameters = {{.name = "weight",
                          .shape = {count / 3, 3},
                          .values = std::vector<float>(count, value)},
                         {.name = "bias", .shape = {2}, .values = {value, -0.0F}}},
          .buffers = {{.name = "mean", .shape = {}, .values = {value / 3}},
                      {.name = "none", .shape = {0, 5}, .values = {}}},
          .optimizer = "sgd",
          .optimizer_steps = 17,
          .optimizer_state = {{.name = "momentum", .values = {1, 2, value}},
                              {.name = "empty", .values = {}}},
          .epoch = 3,
          .step = 12,
          .step_samples = 128,
          .order = "shuffled",
          .sampler_seed = ~std::uint64_t{0}};
}

// Bit by bit: a NaN is what it was.
void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_equal(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.model, b.model);
  for (const auto part : {&Checkpoint::parameters, &Checkpoint::buffers}) {
    ASSERT_EQ((a.*part).size(), (b.*part).size());
    for (std::size_t i = 0; i < (a.*part).size(); ++i) {
      EXPECT_EQ((a.*part)[i].name, (b.*part)[i].name);
      EXPECT_EQ((a.*part)[i].shape, (b.*part)[i].shape);
      expect_equal((a.*part)[i].values, (b.*part)[i].values);
    }
  }
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.optimizer_steps, b.optimizer_steps);
  ASSERT_EQ(a.optimizer_state.size(), b.optimizer_state.size());
  for (std::size_t i = 0; i < a.optimizer_state.size(); ++i) {
    EXPECT_EQ(a.optimizer_state[i].name, b.optimizer_state[i].name);
    expect_equal(a.optimizer_state[i].values, b.optimizer_state[i].values);
  }
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.step_samples, b.step_samples);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.sampler_seed, b.sampler_seed);
}

std::size_t files_in(const TemporaryFolder& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++count;
  }
  return count;
}

TEST(CheckpointFile, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  for (const Checkpoint& each :
       {toy(1.5F), Checkpoint{}, toy(std::numeric_limits<float>::quiet_NaN()),
        // More than the block that is read and written at a time.
        toy(std::numeric_limits<float>::denorm_min(), 3 << 20)}) {
    save_checkpoint(folder / "checkpoint", each);
    expect_equal(load_checkpoint(folder / "checkpoint"), each);
    EXPECT_EQ(files_in(folder), 1u);
  }
}

// As the last thing in the file, where fewer bytes are left than it has columns.
TEST(CheckpointFile, GivesBackATensorOfNoRows) {
  const TemporaryFolder folder;
  Checkpoint checkpoint;
  checkpoint.buffers = {{.name = "none", .shape = {0, 1000}, .values = {}}};
  save_checkpoint(folder / "checkpoint", checkpoint);
  expect_equal(load_checkpoint(folder / "checkpoint"), checkpoint);
}

TEST(CheckpointFile, HasTheDocumentedBytes) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "checkpoint",
                  {.model = "m", .epoch = 0x0102, .order = "o", .sampler_seed = 2});
  const std::string bytes = read_file(folder / "checkpoint");
  const std::string zeros(8, '\0');
  std::string body = std::string("\1\0\0\0m", 5) + zeros;       // model, no tensors of either kind
  body += std::string(4, '\0') + zeros + std::string(4, '\0');  // optimizer, steps, no state
  body += std::string("\2\1\0\0\0\0\0\0", 8) + zeros;           // epoch, step
  body += zeros + std::string("\1\0\0\0o", 5);                  // what it counts
  body += std::string("\2\0\0\0\0\0\0\0", 8);                   // seed
  const std::string size{static_cast<char>(24 + body.size()), 0, 0, 0, 0, 0, 0, 0};
  const std::string checked = size + body;
  const auto checksum = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
  std::string expected = std::string("UNISONO\x1a\3\0\0\0", 12);
  for (int shift = 0; shift < 32; shift += 8) {
    expected.push_back(static_cast<char>(checksum >> shift));
  }
  EXPECT_EQ(bytes, expected + checked);
}

TEST(CheckpointFile, CutShortAnywhereIsRefused) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "whole", toy(1));
  const std::string bytes = read_file(folder / "whole");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_file(folder / "cut", bytes.substr(0, length));
    EXPECT_NE(thrown_by([&] { load_checkpoint(folder / "cut"); }), "nothing") << length;
  }
  write_file(folder / "cut", bytes + "x");
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "cut"); }), HasSubstr("added to"));
}

TEST(CheckpointFile, WithAnyBitChangedIsRefused) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "whole", toy(1));
  const std::string bytes = read_file(folder / "whole");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 7}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      write_file(folder / "changed", changed);
      EXPECT_NE(thrown_by([&] { load_checkpoint(folder / "changed"); }), "nothing") << at;
    }
  }
}

// Writes `text` over the file at `at` and makes checksum and size fit, as an attacker would.
void forge(const std::string& path, std::string bytes, std::size_t at, const std::string& text) {
  bytes.replace(at, text.size(), text);
  const auto checksum = static_cast<std::uint32_t>(crc32(
      0, reinterpret_cast<const Bytef*>(bytes.data() + 16), static_cast<uInt>(bytes.size() - 16)));
  for (int i = 0; i < 4; ++i) {
    bytes[static_cast<std::size_t>(12 + i)] = static_cast<char>(checksum >> (8 * i));
  }
  write_file(path, bytes);
}

// Every four and eight bytes in turn become as large as they can be. Some of these are values that
// may be anything; none may end the process or ask for memory that the file does not account for.
TEST(CheckpointFile, WithHostileLengthsIsRefusedOrRead) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "whole", toy(1));
  const std::string bytes = read_file(folder / "whole");
  int refused = 0;
  for (const std::string& text :
       {std::string(4, '\xff'), std::string(8, '\xff'), std::string("\xff\xff\xff\x7f", 4),
        std::string("\0\0\0\0\0\0\0\x40", 8)}) {
    for (std::size_t at = 24; at + text.size() <= bytes.size(); ++at) {
      forge(folder / "forged", bytes, at, text);
      refused += thrown_by([&] { load_checkpoint(folder / "forged"); }) != "nothing";
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(CheckpointFile, WithMoreElementsThanMemoryCanHoldIsNamed) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "whole", toy(1));
  const std::string bytes = read_file(folder / "whole");
  // Behind the name and the number of dimensions: 2^48 and 2^14.
  forge(folder / "forged", bytes, bytes.find("weight") + 10,
        std::string("\0\0\0\0\0\0\1\0\0\x40\0\0\0\0\0\0", 16));
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "forged"); }),
              HasSubstr(folder / "forged: is damaged: a tensor with an extent of 16384"));
}

TEST(CheckpointFile, ThatIsNoneSaysSo) {
  const TemporaryFolder folder;
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "missing"); }),
              HasSubstr(folder / "missing: cannot be opened: No such file"));
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder.path()); }), HasSubstr("not a regular file"));
  write_file(folder / "text", "this is a text that is long enough for a header");
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "text"); }), HasSubstr("not a checkpoint"));
  save_checkpoint(folder / "whole", toy(1));
  const std::map<char, std::string> remedies{
      {'\2', "go on with the unisono that wrote it, or train anew with this one"},
      {'\4', "read it with a newer unisono"}};
  for (const auto& [version, remedy] : remedies) {
    forge(folder / "other", read_file(folder / "whole"), 8, {version, '\0', '\0', '\0'});
    EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "other"); }),
                HasSubstr("of version " + std::to_string(version) +
                          "; this program reads version 3; " + remedy));
  }
}

TEST(CheckpointFile, NamesAnOrderOfAtMost64Bytes) {
  const TemporaryFolder folder;
  Checkpoint checkpoint;
  checkpoint.order = std::string(64, 'o');
  save_checkpoint(folder / "c", checkpoint);
  expect_equal(load_checkpoint(folder / "c"), checkpoint);
  // What follows becomes part of the name.
  const std::string bytes = read_file(folder / "c");
  forge(folder / "c", bytes, bytes.find("oooo") - 4, std::string("\101\0\0\0", 4));
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder / "c"); }), HasSubstr("a name of 65 bytes"));
  checkpoint.order += 'o';
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { save_checkpoint(folder / "c", checkpoint); }),
              HasSubstr("65 bytes; at most 64"));
}

// The child dies at the stage; what it leaves behind must be one of the two, whole.
class KilledSave : public testing::TestWithParam<SaveStage> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

TEST_P(KilledSave, LeavesThePreviousOrTheNewCheckpointAndNothingThatStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(1));
  EXPECT_EXIT(write_checkpoint_file(path, toy(2, 3 << 20),
                                    [](SaveStage stage) {
                                      if (stage == GetParam()) ::raise(SIGKILL);
                                    }),
              testing::KilledBySignal(SIGKILL), "");
  const bool was_renamed = GetParam() == SaveStage::kRenamed;
  expect_equal(load_checkpoint(path), was_renamed ? toy(2, 3 << 20) : toy(1));
  EXPECT_EQ(files_in(folder), was_renamed ? 1u : 2u);
  save_checkpoint(path, toy(3));
  expect_equal(load_checkpoint(path), toy(3));
  EXPECT_EQ(files_in(folder), 1u);
}

INSTANTIATE_TEST_SUITE_P(AtEveryStage, KilledSave,
                         testing::Values(SaveStage::kOpened, SaveStage::kWritten,
                                         SaveStage::kSynchronized, SaveStage::kRenamed));

TEST(CheckpointSave, ThatFailsInTheMiddleKeepsThePreviousOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(1));
  EXPECT_THROW(write_checkpoint_file(
                   path, toy(2), [](SaveStage) { throw std::runtime_error("pulled the plug"); }),
               std::runtime_error);
  expect_equal(load_checkpoint(path), toy(1));
  EXPECT_EQ(files_in(folder), 1u);
}

// A process that was given up, since its disk hung, may wake up while another saves.
TEST(CheckpointSave, ThatAnotherHasOvertakenKeepsThePreviousOne) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(1));
  const auto overtake = [&](SaveStage stage) {
    if (stage != SaveStage::kSynchronized) return;
    EXPECT_EXIT(write_checkpoint_file(path, toy(3), [](SaveStage) { ::raise(SIGKILL); }),
                testing::KilledBySignal(SIGKILL), "");
  };
  EXPECT_THAT(thrown_by([&] { write_checkpoint_file(path, toy(2), overtake); }),
              HasSubstr("another save has begun"));
  EXPECT_EQ(thrown_by([&] { expect_equal(load_checkpoint(path), toy(1)); }), "nothing");
  EXPECT_EQ(files_in(folder), 2u) << "the other is at it";
}

TEST(CheckpointSave, ThatAnotherHasOvertakenLeavesThatOnesCheckpoint) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  const auto overtake = [&](SaveStage stage) {
    if (stage == SaveStage::kOpened) save_checkpoint(path, toy(2));
  };
  EXPECT_NE(thrown_by([&] { write_checkpoint_file(path, toy(1, 3 << 20), overtake); }), "nothing");
  expect_equal(load_checkpoint(path), toy(2));
  EXPECT_EQ(files_in(folder), 1u);
}

/// A process that saves `model` over and over; whether it ever did is its exit status.
pid_t start_saver(const std::string& path, const Checkpoint& model) {
  const pid_t saver = ::fork();
  if (saver != 0) return saver;
  int saved = 0;
  for (int i = 0; i < 3000; ++i)
    saved += thrown_by([&] { save_checkpoint(path, model); }) == "nothing";
  ::_exit(saved > 0 ? 0 : 1);
}

// Each overtakes the other, more often where no disk is waited for; what a reader finds is whole
// all the time.
TEST(CheckpointSave, OfProcessesThatSaveAtOnceIsAlwaysWhole) {
  const TemporaryFolder folder("/dev/shm");
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(0));
  for (const pid_t saver : {start_saver(path, toy(1)), start_saver(path, toy(2))}) {
    ASSERT_GE(saver, 0);
    int status = 0;
    while (::waitpid(saver, &status, WNOHANG) == 0) {
      EXPECT_EQ(thrown_by([&] { load_checkpoint(path); }), "nothing");
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a saver never saved";
  }
  EXPECT_NE(load_checkpoint(path).parameters[0].values[0], 0.0F);
  save_checkpoint(path, toy(3));
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(CheckpointSave, RemovesWhatAKilledOneLeftAndNothingElse) {
  const TemporaryFolder folder;
  const std::string digits = "0123456789abcdef";
  write_file(folder / "checkpoint.tmp-" + digits, "unfinished");
  const std::vector<std::string> others{"checkpoint.tmp", "checkpoint.tmp-" + digits + "0",
                                        "checkpoint.tmp-0123456789abcdeg",
                                        "checkpoint.new-" + digits, "other.tmp-" + digits};
  for (const std::string& each : others) write_file(folder / each, each);
  std::filesystem::create_symlink("precious", folder / "checkpoint.tmp-0000000000000000");
  save_checkpoint(folder / "checkpoint", toy(1));
  EXPECT_FALSE(std::filesystem::exists(folder / "checkpoint.tmp-" + digits));
  for (const std::string& each : others) EXPECT_EQ(read_file(folder / each), each);
  EXPECT_EQ(files_in(folder), others.size() + 2);
}

TEST(CheckpointSave, OfATensorThatDoesNotFitItsShapeIsRefused) {
  const TemporaryFolder folder;
  Checkpoint wrong = toy(1);
  wrong.parameters[0].shape = {7};
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { save_checkpoint(folder / "c", wrong); }),
              HasSubstr("weight of shape [7] has 6 values"));
  EXPECT_EQ(files_in(folder), 0u);
}

TEST(CheckpointSave, OfATensorOfMoreThan16DimensionsKeepsThePreviousOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  Checkpoint deep = toy(1);
  deep.buffers[0].shape = Shape(16, 1);
  save_checkpoint(path, deep);
  Checkpoint deeper = deep;
  deeper.buffers[0].shape = Shape(17, 1);
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { save_checkpoint(path, deeper); }),
              HasSubstr("mean has 17 dimensions; at most 16"));
  EXPECT_EQ(thrown_by([&] { expect_equal(load_checkpoint(path), deep); }), "nothing");
}

TEST(CheckpointSave, WhereItCannotWriteSaysWhy) {
  const TemporaryFolder folder;
  EXPECT_THAT(thrown_by([&] { save_checkpoint(folder / "nowhere/checkpoint", toy(1)); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(thrown_by([&] { save_checkpoint(folder.path(), toy(1)); }),
              HasSubstr("cannot rename"));
}

// A limit on the size of files for as long as it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = previous_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("no limit on file sizes");
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    ::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  sighandler_t previous_handler_ = nullptr;
};

TEST(CheckpointSave, BeyondALimitOnFileSizesKeepsThePreviousOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(1));
  std::string message;
  {
    const FileSizeLimit limit(1 << 20);
    message = thrown_by([&] { save_checkpoint(path, toy(2, 3 << 20)); });
  }
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr("the previous one, if any, is unchanged"));
  expect_equal(load_checkpoint(path), toy(1));
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(CheckpointSave, OnAFullDiskKeepsThePreviousOne) {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "a small disk of its own needs privileges to mount it";
  }
  const std::string path = folder / "checkpoint";
  save_checkpoint(path, toy(1));
  const std::string message = thrown_by([&] { save_checkpoint(path, toy(2, 3 << 20)); });
  Checkpoint left;
  const std::string reading = thrown_by([&] { left = load_checkpoint(path); });
  const std::size_t files = files_in(folder);
  ::umount(folder.path().c_str());
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_EQ(reading, "nothing");
  expect_equal(left, toy(1));
  EXPECT_EQ(files, 1u);
}

// Two parameters, one buffer, nothing to compute.
class ToyModel : public Model {
 public:
  ToyModel(std::string name, Shape weight, bool has_buffer = true) : name_(std::move(name)) {
    for (Arena* arena : {&parameters_, &gradients_}) {
      arena->add("weight", weight);
      arena->add("bias", {3});
      arena->allocate();
    }
    if (has_buffer) buffers_.add("mean", {2});
    buffers_.allocate();
  }
  Tensor forward(const Tensor&, Pass&) override { return {}; }
  void backward(const Tensor&, Pass&) override {}
  std::unique_ptr<Model> clone() const override { return nullptr; }
  std::string describe() const override { return name_; }

 private:
  std::string name_;
};

void fill(Model& model, float from) {
  for (Arena* arena : {&model.parameters(), &model.buffers()}) {
    for (int i = 0; i < static_cast<int>(arena->entries().size()); ++i) {
      for (float& value : (*arena)[i]) value = from++;
    }
  }
}

std::vector<float> state_of(const Model& model) {
  std::vector<float> all;
  for (const Arena* arena : {&model.parameters(), &model.buffers()}) {
    for (int i = 0; i < static_cast<int>(arena->entries().size()); ++i) {
      const std::span<const float> values = (*arena)[i];
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

TEST(CheckpointOfAModel, IsRestoredThroughAFile) {
  const TemporaryFolder folder;
  ToyModel saved("toy", {4, 2}), restored("toy", {4, 2});
  fill(saved, 1);
  Checkpoint checkpoint;
  take_model(saved, &checkpoint);
  save_checkpoint(folder / "checkpoint", checkpoint);
  restore_model(load_checkpoint(folder / "checkpoint"), &restored);
  EXPECT_EQ(state_of(restored), state_of(saved));
  EXPECT_EQ(checkpoint.parameters[0].name, "weight");
}

TEST(CheckpointOfAModel, IsRefusedByAnotherAndChangesNothing) {
  ToyModel saved("mlp 4-2", {4, 2});
  fill(saved, 1);
  Checkpoint checkpoint;
  take_model(saved, &checkpoint);
  const auto refusal = [&](ToyModel other) {
    fill(other, 50);
    const std::vector<float> before = state_of(other);
    const std::string message =
        thrown_by<std::invalid_argument>([&] { restore_model(checkpoint, &other); });
    EXPECT_EQ(state_of(other), before);
    return message;
  };
  const std::string message = refusal(ToyModel("cnn 3", {4, 2}));
  EXPECT_THAT(message, HasSubstr("\"mlp 4-2\""));
  EXPECT_THAT(message, HasSubstr("\"cnn 3\""));
  EXPECT_THAT(refusal(ToyModel("mlp 4-2", {2, 4})),
              HasSubstr("weight [4, 2] instead of weight [2, 4]"));
  EXPECT_THAT(refusal(ToyModel("mlp 4-2", {4, 2}, false)), HasSubstr("1 tensors instead of 0"));
}

// Momentum, and nothing to move.
class ToyOptimizer : public Optimizer {
 public:
  ToyOptimizer(std::string state, std::size_t count) : state_(std::move(state)), values_(count) {}
  void step(std::span<float>, std::span<const float>, float) override {}
  std::vector<State> state() override { return {{.name = state_, .values = values_}}; }
  std::size_t steps() const override { return steps_; }
  void set_steps(std::size_t steps) override { steps_ = steps; }
  std::string describe() const override { return "toy with " + state_; }

  std::vector<float>& values() { return values_; }

 private:
  std::string state_;
  std::vector<float> values_;
  std::size_t steps_ = 0;
};

TEST(CheckpointOfAnOptimizer, IsRestoredWholeOrInPart) {
  ToyOptimizer saved("momentum", 10);
  for (std::size_t i = 0; i < 10; ++i) saved.values()[i] = static_cast<float>(i);
  saved.set_steps(99);
  Checkpoint checkpoint;
  take_optimizer(saved, &checkpoint);

  ToyOptimizer whole("momentum", 10);
  restore_optimizer(checkpoint, &whole, 0, 10);
  EXPECT_EQ(whole.values(), saved.values());
  EXPECT_EQ(whole.steps(), 99u);
  ToyOptimizer part("momentum", 4);
  restore_optimizer(checkpoint, &part, 6, 4);
  EXPECT_THAT(part.values(), testing::ElementsAre(6, 7, 8, 9));
  EXPECT_EQ(part.steps(), 99u);
}

TEST(CheckpointOfAnOptimizer, IsRefusedByAnotherAndBeyondItsEnd) {
  ToyOptimizer saved("momentum", 10);
  Checkpoint checkpoint;
  take_optimizer(saved, &checkpoint);
  const auto refusal = [&](ToyOptimizer other, std::size_t offset, std::size_t count) {
    return thrown_by<std::invalid_argument>(
        [&] { restore_optimizer(checkpoint, &other, offset, count); });
  };
  EXPECT_THAT(refusal({"first_moment", 10}, 0, 10),
              HasSubstr("\"toy with momentum\", which \"toy with first_moment\""));
  EXPECT_NE(refusal({"momentum", 4}, 7, 4), "nothing");
  EXPECT_NE(refusal({"momentum", 4}, ~std::size_t{0}, 4), "nothing");
  EXPECT_NE(refusal({"momentum", 4}, 0, 10), "nothing");
  EXPECT_NE(refusal({"momentum", 11}, 0, 11), "nothing");
}

}  // namespace
}  // namespace unisono::train::test
