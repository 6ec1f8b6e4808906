#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <string>

#include "base/collective.h"
#include "base/fnv.h"
#include "base/limits.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/kept_communicator.h"
#include "comm/member.h"
#include "compute/compute.h"
#include "unisono/addends.h"

namespace unisono {
namespace {

constexpr const char* kOperation = "all_reduce_addends";
// What one piece takes on each side of the exchange, unless a block of one vector is longer.
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
constexpr std::size_t kBlockElementsMin = 16;

struct Request {
  std::span<const void* const> addends;
  void* out;
  std::size_t count;
  DataType type;
  ReduceOp op;
  CallOptions options;

  std::size_t width() const { return size_of(type); }
};

// As it travels: whether the rank refuses its own call, its addends, and what must be alike.
using Words = std::array<std::uint64_t, 5>;

Words words_of(const Request& request, bool is_refused) {
  const ReduceOp& op = request.op;
  const auto kind = static_cast<std::uint64_t>(request.type) |
                    static_cast<std::uint64_t>(op.kind) << 8 |
                    static_cast<std::uint64_t>(request.options.order) << 16 |
                    static_cast<std::uint64_t>(op.commutative) << 24;
  const bool has_name = op.kind == OpKind::kUser && op.name != nullptr;
  return {is_refused ? 1u : 0u, request.addends.size(), request.count, kind,
          has_name ? fnv1a_64(op.name) : 0};
}

Status invalid(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }

bool is_on_device(detail::CommunicatorState& state, const Request& request) {
  const auto is_there = [&](const void* in, void* out) {
    return state.devices().concerns({.collective = Collective::kAllReduce,
                                     .in = in,
                                     .out = out,
                                     .count = request.count,
                                     .type = request.type});
  };
  return is_there(nullptr, request.out) ||
         std::ranges::any_of(request.addends,
                             [&](const void* addend) { return is_there(addend, nullptr); });
}

bool overlaps_in_part(const Request& request, const void* addend) {
  const auto* const out = static_cast<const std::byte*>(request.out);
  const auto* const in = static_cast<const std::byte*>(addend);
  const std::size_t bytes = request.count * request.width();
  return in != out && in < out + bytes && out < in + bytes;
}

// As far as this rank can tell.
Status check(detail::CommunicatorState& state, const Request& request, const Status& lengths) {
  if (!lengths) return lengths;
  if (static_cast<int>(request.type) >= kDataTypeCount ||
      static_cast<int>(request.options.order) >= kOrderCount) {
    return invalid("unknown element type or order");
  }
  if (!request.options.algorithm.empty()) return invalid("it takes no algorithm");
  if (request.options.stream) return invalid("it takes host memory and no stream");
  if (request.addends.size() > kAddendsMax) {
    return invalid(std::to_string(request.addends.size()) + " addends, the limit is " +
                   std::to_string(kAddendsMax));
  }
  if (request.count > kBufferBytesMax / request.width()) {
    return invalid("count " + std::to_string(request.count) + " is more than a buffer can have");
  }
  const bool has_null = std::ranges::find(request.addends, nullptr) != request.addends.end();
  if (request.count > 0 && (request.out == nullptr || has_null)) {
    return invalid("out or an addend is null");
  }
  if (std::ranges::any_of(request.addends,
                          [&](const void* addend) { return overlaps_in_part(request, addend); })) {
    return invalid("out overlaps an addend without being the same");
  }
  if (is_on_device(state, request)) return invalid("an addend or out is device memory");
  return compute::Reduction::make(request.type, request.op, 1).status();
}

std::size_t total_of(const std::vector<std::size_t>& addends) {
  return std::accumulate(addends.begin(), addends.end(), std::size_t{0});
}

// How many addends each rank has, once all are known to make the same call.
Result<std::vector<std::size_t>> judge(std::span<const Words> table) {
  std::vector<std::size_t> addends;
  for (std::size_t r = 0; r < table.size(); ++r) {
    const auto& [refused, own, count, kind, name] = table[r];
    const auto rank = static_cast<Rank>(r);
    const std::string who = "rank " + std::to_string(r);
    if (refused != 0) {
      return Status(ErrorCode::kInvalidArgument, who + " gave wrong arguments", rank);
    }
    if (count != table[0][2]) {
      return Status(ErrorCode::kMismatch,
                    who + " reduces " + std::to_string(count) + " elements and rank 0 " +
                        std::to_string(table[0][2]) + "; give the same number on all ranks",
                    rank);
    }
    if (kind != table[0][3] || name != table[0][4]) {
      return Status(ErrorCode::kMismatch,
                    who + " gives another type, operator or order than rank 0", rank);
    }
    addends.push_back(static_cast<std::size_t>(std::min<std::uint64_t>(own, kAddendsMax + 1)));
  }
  const std::size_t total = total_of(addends);
  if (total == 0 || total > kAddendsMax) {
    return invalid("all ranks together have " + std::to_string(total) +
                   " addends; accepted are 1 to " + std::to_string(kAddendsMax));
  }
  return addends;
}

// A call whose counts are bytes.
Call bytes_call(Collective collective, const void* in, void* out, const Request& request) {
  return {.collective = collective,
          .in = in,
          .out = out,
          .options = {.timeout = request.options.timeout, .algorithm = kAutomaticAlgorithm}};
}

class AddendsReducer {
 public:
  AddendsReducer(Communicator& communicator, const Request& request,
                 std::vector<std::size_t> addends, compute::Reduction reduction)
      : communicator_(communicator),
        request_(request),
        addends_(std::move(addends)),
        reduction_(std::move(reduction)),
        total_(total_of(addends_)) {
    const std::size_t most = *std::ranges::max_element(addends_);
    const std::size_t vectors = std::max(total_, most * ranks());  // as all ranks know it
    const std::size_t share = (request_.count + ranks() - 1) / ranks();
    const std::size_t fits = kStagingBytes / request_.width() / vectors;
    block_ = std::min(share, std::max(fits, kBlockElementsMin));
    given_.resize(request_.addends.size() * block_ * ranks() * request_.width());
    taken_.resize(total_ * block_ * request_.width());
    operands_.resize(total_);
  }

  void run() {
    const std::size_t piece = block_ * ranks();
    for (begin_ = 0; begin_ < request_.count; begin_ += piece) {
      length_ = std::min(piece, request_.count - begin_);
      pack();
      exchange();
      reduce();
      gather();
    }
  }

 private:
  std::size_t ranks() const { return addends_.size(); }
  std::size_t self() const { return static_cast<std::size_t>(communicator_.rank()); }
  // A rank's block of the piece, in elements.
  std::size_t first_of(std::size_t rank) const { return std::min(rank * block_, length_); }
  std::size_t length_of(std::size_t rank) const { return first_of(rank + 1) - first_of(rank); }
  std::byte* out_of(std::size_t rank) const {
    return static_cast<std::byte*>(request_.out) + (begin_ + first_of(rank)) * request_.width();
  }

  void pack() {
    std::byte* to = given_.data();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const std::size_t count = length_of(rank);
      for (const void* const addend : request_.addends) {
        const auto* const from =
            static_cast<const std::byte*>(addend) + (begin_ + first_of(rank)) * request_.width();
        reduction_.prepare(to, from, count);
        to += count * request_.width();
      }
    }
  }

  void exchange() {
    given_counts_.clear();
    taken_counts_.clear();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      given_counts_.push_back(addends_[self()] * length_of(rank) * request_.width());
      taken_counts_.push_back(addends_[rank] * length_of(self()) * request_.width());
    }
    Call call = bytes_call(Collective::kAllToAllV, given_.data(), taken_.data(), request_);
    call.in_counts = given_counts_;
    call.out_counts = taken_counts_;
    communicator_.run(call);
  }

  void reduce() {
    const std::size_t count = length_of(self());
    if (count == 0) return;
    for (std::size_t i = 0; i < total_; ++i) {
      operands_[i] = taken_.data() + i * count * request_.width();
    }
    reduction_.combine_tree(out_of(self()), operands_.data(), static_cast<int>(total_), count,
                            false);
    reduction_.finish(out_of(self()), count);
  }

  void gather() {
    given_counts_.clear();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      given_counts_.push_back(length_of(rank) * request_.width());
    }
    Call call = bytes_call(Collective::kAllGatherV, out_of(self()), out_of(0), request_);
    call.count = given_counts_[self()];
    call.out_counts = given_counts_;
    communicator_.run(call);
  }

  Communicator& communicator_;
  const Request& request_;
  std::vector<std::size_t> addends_;  // by rank
  compute::Reduction reduction_;
  std::size_t total_;
  std::size_t block_ = 0;               // elements of a piece for each rank
  std::size_t begin_ = 0, length_ = 0;  // of the piece
  std::vector<std::byte> given_, taken_;
  std::vector<std::size_t> given_counts_, taken_counts_;  // in bytes
  std::vector<const void*> operands_;
};

[[noreturn]] void refuse(const Status& status) {
  throw Error(status, {.host = "", .link = "", .operation = kOperation});
}

void reduce_all(KeptCommunicator communicator, Request request, const Status& lengths) {
  detail::CommunicatorState& state =
      detail::member(CommunicatorAccess::state(communicator), kOperation);
  request.options.order =
      std::max({request.options.order, state.runtime().config().order, Order::kCanonical});
  const Status valid = check(state, request, lengths);
  const Words own = words_of(request, !valid.ok());
  try {
    std::vector<Words> table(static_cast<std::size_t>(communicator.size()));
    Call call = bytes_call(Collective::kAllGather, own.data(), table.data(), request);
    call.count = sizeof own;
    communicator.run(call);
    if (!valid) refuse({valid.code(), valid.message(), communicator.rank()});
    Result<std::vector<std::size_t>> addends = judge(table);
    if (!addends) refuse(addends.error());
    const auto total = static_cast<int>(total_of(*addends));
    AddendsReducer(
        communicator, request, std::move(*addends),
        compute::Reduction::make(request.type, request.op, total, request.options.order).value())
        .run();
  } catch (const std::bad_alloc&) {
    communicator.abort("no memory for all_reduce_addends");
    refuse({ErrorCode::kOutOfResources, "there is no memory to stage the addends of " +
                                            std::to_string(communicator.size()) + " ranks"});
  }
}

}  // namespace

void all_reduce_addends(Communicator& communicator, std::span<const void* const> addends, void* out,
                        std::size_t count, DataType type, ReduceOp op, const CallOptions& options) {
  reduce_all(communicator, {addends, out, count, type, op, options}, Status());
}

void detail::all_reduce_addends(Communicator& communicator, std::span<const void* const> addends,
                                std::span<const std::size_t> lengths, void* out, std::size_t count,
                                DataType type, ReduceOp op, const CallOptions& options) {
  const auto other =
      std::ranges::find_if(lengths, [&](std::size_t length) { return length != count; });
  Status equal;
  if (other != lengths.end()) {
    equal = invalid(*other == kOtherType ? "an addend has another type than out"
                                         : "an addend has " + std::to_string(*other) +
                                               " elements and out has " + std::to_string(count));
  }
  reduce_all(communicator, {addends, out, count, type, op, options}, equal);
}

void detail::refuse_addends(Communicator& communicator, const CallOptions& options) noexcept {
  try {
    reduce_all(communicator, {{}, nullptr, 0, DataType::kUint8, ops::sum, options},
               invalid("it has no addends to give"));
  } catch (const std::exception&) {
  }
}

}  // namespace unisono
