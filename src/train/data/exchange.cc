#include "train/data/exchange.h"

#include <algorithm>
#include <stdexcept>

#include "unisono/objects.h"
#include "unisono/train/loader.h"

namespace unisono::train {

namespace {

// The most that one rank says to the others.
constexpr std::size_t kWordsBytesMax = 1024;

// What a rank has read. It is bounded by what it was to read before room is made for it.
struct Announcement {
  std::uint64_t samples = 0, bytes = 0;
};

[[noreturn]] void fail(std::size_t rank, const std::string& what) {
  throw std::runtime_error("rank " + std::to_string(rank) + " " + what);
}

void check(const std::vector<Announcement>& announcements, const SampleSource& source) {
  const auto ranks = static_cast<int>(announcements.size());
  for (int r = 0; r < ranks; ++r) {
    const auto [samples, bytes] = announcements[static_cast<std::size_t>(r)];
    const LoadRange range = load_range(source.size(), {.ranks = ranks, .rank = r});
    if (samples > range.end - range.begin || bytes > samples * source.record_bytes_max() ||
        bytes < samples * source.record_bytes_min()) {
      fail(static_cast<std::size_t>(r),
           "announces " + std::to_string(samples) + " samples of " + std::to_string(bytes) +
               " bytes where it read at most " + std::to_string(range.end - range.begin) + " of " +
               std::to_string(source.record_bytes_max()) + " bytes each");
    }
  }
}

// The most that any rank has, of either.
Announcement largest(const std::vector<Announcement>& announcements) {
  Announcement most;
  for (const auto& [samples, bytes] : announcements) {
    most.samples = std::max(most.samples, samples);
    most.bytes = std::max(most.bytes, bytes);
  }
  return most;
}

// Zero would be the default limit.
std::uint64_t limit_of(std::uint64_t bytes) { return std::max<std::uint64_t>(1, bytes); }

// Where the records of these lengths, of all ranks, end.
std::vector<std::uint64_t> ends_of(const std::vector<std::uint32_t>& lengths,
                                   const std::vector<Announcement>& announcements) {
  std::vector<std::uint64_t> ends;
  ends.reserve(lengths.size());
  std::uint64_t end = 0;
  for (std::size_t r = 0; r < announcements.size(); ++r) {
    const std::uint64_t begin = end;
    const std::uint64_t samples =
        std::min<std::uint64_t>(announcements[r].samples, lengths.size() - ends.size());
    for (std::uint64_t i = 0; i < samples; ++i) {
      end += lengths[ends.size()];
      ends.push_back(end);
    }
    if (samples != announcements[r].samples || end - begin != announcements[r].bytes) {
      fail(r, "announced " + std::to_string(announcements[r].samples) + " samples of " +
                  std::to_string(announcements[r].bytes) + " bytes and sent the lengths of " +
                  std::to_string(samples) + " of " + std::to_string(end - begin) + " bytes");
    }
  }
  return ends;
}

// A line of what its samples are, and not of where they lie: ranks may have folders of other names.
std::string facts_of(const SampleSource& source) {
  std::string facts;
  for (const std::uint64_t fact :
       {std::uint64_t{source.size()}, static_cast<std::uint64_t>(source.classes()),
        std::uint64_t{source.targets_per_sample()}, std::uint64_t{source.record_bytes_min()},
        std::uint64_t{source.record_bytes_max()}, source.fingerprint()}) {
    facts += std::to_string(fact) + " ";
  }
  return facts + to_string(source.input_shape()) + "\n";
}

}  // namespace

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const std::exception& error) {
    const std::string why = error.what();
    return why.empty() ? "for no reason that it gives" : why;
  } catch (...) {
    return "by a throw that is no exception";
  }
}

void agree_on_success(Communicator& communicator, const std::string& failure) {
  const std::vector<std::string> failures = all_gather_values(
      communicator, failure.substr(0, kWordsBytesMax), {.size_limit = 2 * kWordsBytesMax});
  for (std::size_t r = 0; r < failures.size(); ++r) {
    if (!failures[r].empty()) fail(r, "could not load its samples: " + failures[r]);
  }
}

void agree_on_source(Communicator& communicator, const SampleSource& source) {
  const std::string words = source.describe().substr(0, kWordsBytesMax / 3);
  std::string facts;
  std::string failure = failure_of([&] { facts = facts_of(source); });
  std::string first = facts + words;
  broadcast_value(communicator, first, 0, {.size_limit = 2 * kWordsBytesMax});
  const std::size_t end = first.find('\n') + 1;
  if (failure.empty() && first.substr(0, end) != facts) {
    const std::string theirs = first.substr(end);
    failure = "it sees " + words + ", rank 0 " + (theirs == words ? "others of that kind" : theirs);
  }
  agree_on_success(communicator, failure);
}

std::vector<std::uint32_t> lengths_of(const Records& records) {
  std::vector<std::uint32_t> lengths(records.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<std::uint32_t>(records[i].size());
  }
  return lengths;
}

Records gather_records(Communicator& communicator, const Records& mine,
                       const std::vector<std::uint32_t>& lengths, const SampleSource& source,
                       std::size_t staging_bytes) {
  const std::vector<Announcement> announcements = all_gather_values(
      communicator, Announcement{.samples = mine.size(), .bytes = mine.bytes.size()});
  check(announcements, source);
  // Both are plain bytes, which arrive where they stay. No rank may send more than the largest that
  // was announced, nor look at what came before all has: who throws is not waited for then.
  const Announcement most = largest(announcements);
  const auto all_lengths = all_gather_list(
      communicator, lengths,
      {.staging_bytes = staging_bytes, .size_limit = limit_of(most.samples * sizeof lengths[0])});
  Records all;
  all.bytes = all_gather_list(communicator, mine.bytes,
                              {.staging_bytes = staging_bytes, .size_limit = limit_of(most.bytes)});
  all.ends = ends_of(all_lengths, announcements);
  if (all.bytes.size() != (all.ends.empty() ? 0 : all.ends.back())) {
    throw std::runtime_error("the ranks sent " + std::to_string(all.bytes.size()) +
                             " bytes of samples and announced others");
  }
  return all;
}

}  // namespace unisono::train
