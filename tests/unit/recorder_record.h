// Records as tests make them: by the writer, into memory of the test.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "recorder/record_reader.h"
#include "recorder/recorder.h"

namespace unisono::recorder::test {

/// A rank of a job of `size` that records into memory which outlives it.
struct RecordingRank {
  explicit RecordingRank(int rank, int size = 1, const std::string& job = "job")
      : recorder(memory.data(), {job, rank, size, "host"}) {}
  RecordingRank(const RecordingRank&) = delete;

  RankRecord read() const;

  // As aligned as mapped memory.
  std::vector<std::byte> memory = std::vector<std::byte>(kRecordBytes);
  Recorder recorder;
};

/// An all_reduce of `count` floats.
CallRecord all_reduce_of(std::uint64_t count);
/// The same as the `sequence`th of its communicator.
Operation all_reduce(std::uint64_t sequence, std::uint64_t count = 4);
Operation message(Collective collective, int peer);

}  // namespace unisono::recorder::test
