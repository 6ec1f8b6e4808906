// How the kernels' bodies share out a piece: every element of every output is written once, by
// one thread, nothing else is touched, whatever the count, the alignments, the number of inputs,
// outputs and threads, and also where outputs are inputs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "cuda/kernels/kernel_names.h"
#include "tests/cuda/kernel_twins.h"

namespace unisono::cuda {
namespace {

constexpr std::size_t kGuardBytes = 32;
constexpr std::uint8_t kGuard = 0xa5;

/// Small whole numbers of a type, which every sum and every move keeps exact.
struct Values {
  DataType type;

  void store(std::uint8_t* to, unsigned value) const {
    switch (type) {
      case DataType::kFloat32: {
        const auto number = static_cast<float>(value);
        std::memcpy(to, &number, sizeof number);
        return;
      }
      case DataType::kFloat64: {
        const double number = value;
        std::memcpy(to, &number, sizeof number);
        return;
      }
      case DataType::kBfloat16: {
        const Bfloat16 number = to_bfloat16(static_cast<float>(value));
        std::memcpy(to, &number, sizeof number);
        return;
      }
      default: {  // integers
        const std::uint64_t number = value;
        std::memcpy(to, &number, size_of(type));
      }
    }
  }
};

/// A buffer with guards around it, at any offset from a multiple of 64 bytes.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t offset)
      : memory_(bytes + offset + 2 * kGuardBytes + 64, kGuard), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuardBytes;
    begin_ = kGuardBytes + (64 - address % 64) % 64 + offset;
  }
  std::uint8_t* data() { return memory_.data() + begin_; }
  const std::uint8_t* data() const { return memory_.data() + begin_; }
  bool guards_hold() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + bytes_;
      if (!inside && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::vector<std::uint8_t> memory_;
  std::size_t bytes_;
  std::size_t begin_;
};

/// What one piece is tried with.
struct Case {
  WorkKind kind;
  PieceMode mode = PieceMode::kSpread;
  int inputs = 1;
  int outputs = 1;
  std::size_t count = 0;
  std::size_t input_offset = 0;
  std::size_t input_step = 0;  ///< between the offsets of one input and the next
  std::size_t output_offset = 0;
  bool in_place = false;  ///< output j is input (j + 1) % inputs
  int null_output = -1;
  std::uint64_t threads = 3;

  std::string text() const {
    return kernel_name(kind) + " mode " + std::to_string(static_cast<int>(mode)) + " inputs " +
           std::to_string(inputs) + " outputs " + std::to_string(outputs) + " count " +
           std::to_string(count) + " offsets " + std::to_string(input_offset) + "+" +
           std::to_string(input_step) + "," + std::to_string(output_offset) +
           (in_place ? " in place" : "") + " null " + std::to_string(null_output) + " threads " +
           std::to_string(threads);
  }
  bool scans() const { return mode == PieceMode::kPrefix || mode == PieceMode::kExclusive; }
  bool writes(int output) const {
    return output != null_output && !(mode == PieceMode::kExclusive && output == 0);
  }
};

/// Element `i` of input `k`: 0 to 7, so that 16 of them add up to what bf16 and int8 hold.
unsigned input_value(int k, std::size_t i) { return static_cast<unsigned>(i * 5 + k * 3) % 8; }

unsigned output_value(const Case& c, int output, std::size_t i) {
  if (c.mode == PieceMode::kPermute) return input_value(output, i);
  int end = c.inputs;
  if (c.mode == PieceMode::kPrefix) end = output + 1;
  if (c.mode == PieceMode::kExclusive) end = output;
  unsigned sum = 0;
  for (int k = 0; k < end; ++k) sum += input_value(k, i);
  return sum;
}

class Trial {
 public:
  explicit Trial(const Case& c)
      : case_(c), width_(size_of(c.kind.type)), stranger_(c.count * width_, kGuard) {
    const std::size_t bytes = c.count * width_;
    for (int k = 0; k < c.inputs; ++k) {
      inputs_.emplace_back(bytes, (c.input_offset + k * c.input_step) % 64);
      for (std::size_t i = 0; i < c.count; ++i)
        values().store(inputs_.back().data() + i * width_, input_value(k, i));
    }
    if (!c.in_place) {
      for (int j = 0; j < c.outputs; ++j) outputs_.emplace_back(bytes, c.output_offset);
    }
    for (int j = 0; j < c.outputs; ++j) before_.push_back(copy_of(output(j)));
  }

  void run(Form form) {
    DeviceWork work;
    work.piece_count = 1;
    work.pieces[0] = {.count = case_.count,
                      .first_input = 3,
                      .inputs = static_cast<std::uint16_t>(case_.inputs),
                      .first_output = 100,
                      .outputs = static_cast<std::uint16_t>(case_.outputs),
                      .mode = case_.mode};
    for (int k = 0; k < case_.inputs; ++k) work.pointers[3 + k] = inputs_[k].data();
    for (int j = 0; j < case_.outputs; ++j) {
      work.pointers[100 + j] = j == case_.null_output ? nullptr : output(j).data();
    }
    work.pointers[99] = stranger_.data();
    work.pointers[100 + case_.outputs] = stranger_.data();
    run_on_host(work, case_.kind, case_.threads, form);
  }

  void check() {
    std::vector<std::uint8_t> expected(width_);
    for (int j = 0; j < case_.outputs; ++j) {
      const Buffer& buffer = output(j);
      for (std::size_t i = 0; i < case_.count; ++i) {
        const std::uint8_t* wanted = before_[j].data() + i * width_;
        if (case_.writes(j)) {
          values().store(expected.data(), output_value(case_, j, i));
          wanted = expected.data();
        }
        ASSERT_EQ(std::memcmp(buffer.data() + i * width_, wanted, width_), 0)
            << case_.text() << ": output " << j << " element " << i;
      }
    }
    for (const Buffer& buffer : inputs_) ASSERT_TRUE(buffer.guards_hold()) << case_.text();
    for (const Buffer& buffer : outputs_) ASSERT_TRUE(buffer.guards_hold()) << case_.text();
    for (const std::uint8_t byte : stranger_) ASSERT_EQ(byte, kGuard) << case_.text();
  }

 private:
  Values values() const { return {case_.kind.type}; }
  Buffer& output(int j) { return case_.in_place ? inputs_[(j + 1) % case_.inputs] : outputs_[j]; }
  std::vector<std::uint8_t> copy_of(const Buffer& buffer) const {
    return {buffer.data(), buffer.data() + case_.count * width_};
  }

  Case case_;
  std::size_t width_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::vector<std::uint8_t> stranger_;  ///< of other pieces: nothing but guards
  std::vector<std::vector<std::uint8_t>> before_;
};

void expect_right(const Case& c) {
  for (const Form form : {Form::kAsLaunched, Form::kAny}) {
    Trial trial(c);
    trial.run(form);
    trial.check();
  }
}

constexpr DataType kTypes[] = {DataType::kInt8, DataType::kBfloat16, DataType::kFloat32,
                               DataType::kFloat64};

WorkKind sum_of(DataType type) { return {type, true, OpKind::kSum, Order::kAny}; }
WorkKind move_of(DataType type) { return {type, false}; }

/// Every count up to well past the largest unit, then the neighbourhood of larger numbers of units.
std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i <= 70; ++i) all.push_back(i);
  for (const std::size_t i : {95, 96, 97, 127, 128, 129, 191, 192, 193, 200}) all.push_back(i);
  return all;
}

/// What matters to the loops, by mode: the fewest outputs a mode allows, or the most.
Case with_mode(Case c, PieceMode mode) {
  c.mode = mode;
  if (mode == PieceMode::kPermute || c.scans()) c.outputs = c.inputs;
  return c;
}

TEST(WorkLoop, WritesEveryElementForAnyCountAndNumberOfInputs) {
  for (const DataType type : kTypes) {
    for (int inputs = 1; inputs <= kWorkRanksMax; ++inputs) {
      for (const std::size_t count : counts()) {
        Case c{.kind = sum_of(type), .inputs = inputs, .outputs = 2, .count = count};
        c.input_offset = c.output_offset = size_of(type);
        c.threads = 1 + count % 4;
        for (const auto mode : {PieceMode::kSpread, PieceMode::kPrefix, PieceMode::kExclusive})
          expect_right(with_mode(c, mode));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(WorkLoop, MovesEveryByteForAnyCountAndNumberOfBuffers) {
  for (const DataType type : kTypes) {
    for (int buffers = 1; buffers <= kWorkRanksMax; ++buffers) {
      for (const std::size_t count : counts()) {
        Case c{.kind = move_of(type), .outputs = buffers, .count = count};
        c.input_offset = c.output_offset = 2;
        c.threads = 1 + count % 4;
        expect_right(c);
        c.inputs = buffers;
        expect_right(with_mode(c, PieceMode::kPermute));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(WorkLoop, TakesAnyAlignment) {
  for (const DataType type : kTypes) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      for (std::size_t output_offset = 0; output_offset < 16; ++output_offset) {
        for (const std::size_t step : {0, 1, 2, 4, 8}) {
          for (const int inputs : {1, 2, 3, 4, 8}) {
            Case c{.kind = sum_of(type), .inputs = inputs, .count = 53};
            c.input_offset = offset;
            c.input_step = step;
            c.output_offset = output_offset;
            expect_right(c);
            if (inputs == 3) {
              expect_right(with_mode(c, PieceMode::kPrefix));
              c.kind = move_of(type);
              expect_right(with_mode(c, PieceMode::kPermute));
            }
            if (inputs == 1) {
              c.kind = move_of(type);
              expect_right(c);
            }
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Output j is input j + 1: what one output overwrites is still needed by the others.
TEST(WorkLoop, AllowsOutputsThatAreInputs) {
  for (const DataType type : kTypes) {
    for (int inputs = 1; inputs <= kWorkRanksMax; ++inputs) {
      for (const std::size_t count : {1, 15, 16, 17, 64, 200}) {
        for (const std::size_t step : {0, 1}) {
          Case c{.kind = sum_of(type), .inputs = inputs, .outputs = inputs, .count = count};
          c.input_offset = 4;
          c.input_step = step;
          c.in_place = true;
          for (const auto mode : {PieceMode::kSpread, PieceMode::kPrefix, PieceMode::kExclusive})
            expect_right(with_mode(c, mode));
          c.kind = move_of(type);
          expect_right(with_mode(c, PieceMode::kPermute));
          if (inputs == 1) expect_right(c);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(WorkLoop, LeavesOutNullOutputs) {
  for (const int inputs : {1, 2, 3, 8, 16}) {
    for (int null_output = 0; null_output < inputs; ++null_output) {
      Case c{.kind = sum_of(DataType::kFloat32), .inputs = inputs, .outputs = inputs, .count = 67};
      c.null_output = null_output;
      for (const auto mode : {PieceMode::kSpread, PieceMode::kPrefix, PieceMode::kExclusive})
        expect_right(with_mode(c, mode));
      c.kind = move_of(DataType::kFloat32);
      expect_right(with_mode(c, PieceMode::kPermute));
      c.inputs = 1;
      expect_right(c);
    }
  }
}

TEST(WorkLoop, GivesTheSameToAnyNumberOfThreads) {
  for (const std::uint64_t threads : {1, 2, 5, 31, 64, 1000}) {
    for (const int inputs : {1, 2, 4, 5, 8, 16}) {
      Case c{.kind = sum_of(DataType::kFloat32), .inputs = inputs, .outputs = 1, .count = 1003};
      c.input_offset = c.output_offset = 12;
      c.threads = threads;
      expect_right(c);
      c.kind = sum_of(DataType::kInt8);
      expect_right(c);
      if (inputs == 1) {
        c.kind = move_of(DataType::kInt8);
        expect_right(c);
      }
    }
  }
}

/// Counts the loads and stores of each byte: with the outputs elsewhere, running the threads in any
/// order and any one of them twice changes nothing, so who writes what is told by leaving out one.
TEST(WorkLoop, GivesEveryElementToExactlyOneThread) {
  constexpr std::uint64_t kThreads = 7;
  for (const int inputs : {1, 2, 3, 8}) {
    for (const DataType type : kTypes) {
      for (const std::size_t offset : {std::size_t{0}, size_of(type), std::size_t{1}}) {
        const std::size_t width = size_of(type);
        std::vector<int> writers(301, 0);
        for (std::uint64_t only = 0; only < kThreads; ++only) {
          std::vector<std::vector<std::uint8_t>> in(inputs);
          DeviceWork work;
          for (int k = 0; k < inputs; ++k) {
            in[k].assign(301 * width + 16, 0);
            work.pointers[k] = in[k].data() + offset;
          }
          std::vector<std::uint8_t> out(301 * width + 16, 0xff);
          work.pointers[20] = out.data() + offset;
          work.piece_count = 1;
          work.pieces[0] = {.count = 301,
                            .inputs = static_cast<std::uint16_t>(inputs),
                            .first_output = 20,
                            .outputs = 1};
          complete_work(work, sum_of(type));
          find_body(kernel_name(sum_of(type)))->run(work, work.pieces[0], {only, kThreads});
          for (std::size_t i = 0; i < 301; ++i) writers[i] += out[offset + i * width] == 0;
        }
        for (std::size_t i = 0; i < 301; ++i) {
          ASSERT_EQ(writers[i], 1) << name_of(type) << " element " << i << " of " << inputs;
        }
      }
    }
  }
}

}  // namespace
}  // namespace unisono::cuda
