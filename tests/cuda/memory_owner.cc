#include "tests/cuda/memory_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/memory_fixture.h"

namespace unisono::test {

enum class OwnerAction : std::uint32_t {
  kAllocate,
  kRelease,
  kTicket,
  kMap,
  kForget,
  kDmaBuf,
  kCudaMalloc,
  kCudaFree,
  kMapRange,
  kUnmapRanges,
  kFill,
  kCommonByte,
  kFail,
  kCalls,
  kClose,
};

struct OwnerRequest {
  OwnerAction action = OwnerAction::kClose;
  std::int32_t number = 0;
  void* pointer = nullptr;
  std::size_t bytes = 0;
  bool flag = false;
  cuda::BufferTicket ticket;
  char name[64] = {};
};

struct OwnerReply {
  ErrorCode code = ErrorCode::kOk;
  Rank rank = -1;
  std::uint64_t value = 0;
  cuda::BufferTicket ticket;
  char text[512] = {};
};

namespace {

constexpr char kRole[] = "memory_owner";
constexpr char kLink[] = "MEMORY_OWNER_LINK";
constexpr char kOrdinal[] = "MEMORY_OWNER_DEVICE";

UniqueFd their_end;

/// Not close-on-exec at one end, which the other process has under the same number.
std::vector<std::string> with_link(std::vector<std::string> environment, int ordinal,
                                   UniqueFd* link) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) std::abort();
  link->reset(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
  ::close(ends[0]);
  their_end.reset(ends[1]);
  environment.push_back("UNISONO_CUDA_LIBRARY=" + driver_file());
  environment.push_back(std::string(kLink) + "=" + std::to_string(ends[1]));
  environment.push_back(std::string(kOrdinal) + "=" + std::to_string(ordinal));
  return environment;
}

void* as_pointer(std::uint64_t value) { return reinterpret_cast<void*>(value); }

class Owner {
 public:
  explicit Owner(std::unique_ptr<cuda::DeviceMemory> memory) : memory_(std::move(memory)) {}

  OwnerReply act(const OwnerRequest& request) {
    reply_ = {};
    if (memory_ != nullptr) do_it(request);
    return reply_;
  }

 private:
  void answer(const Status& status) {
    reply_.code = status.code();
    reply_.rank = status.rank();
    std::snprintf(reply_.text, sizeof reply_.text, "%s", status.message().c_str());
  }
  template <typename T>
  void answer(const Result<T>& result, T* value) {
    answer(result.status());
    if (result) *value = *result;
  }
  void answer(const Result<void*>& result) {
    answer(result.status());
    if (result) reply_.value = reinterpret_cast<std::uint64_t>(*result);
  }
  Status dma_buf(const OwnerRequest& request) {
    UNISONO_ASSIGN(const auto direct, memory_->direct(request.pointer, request.bytes));
    return direct->dma_buf(direct->bytes(), &reply_.value).status();
  }
  void do_it(const OwnerRequest& request);

  std::unique_ptr<cuda::DeviceMemory> memory_;
  std::vector<MappedRange> ranges_;
  OwnerReply reply_;
};

void Owner::do_it(const OwnerRequest& r) {
  switch (r.action) {
    case OwnerAction::kAllocate:
      return answer(memory_->allocate(r.bytes));
    case OwnerAction::kRelease:
      return answer(memory_->release(r.pointer));
    case OwnerAction::kTicket:
      return answer(memory_->ticket_of(r.pointer, r.bytes), &reply_.ticket);
    case OwnerAction::kMap:
      return answer(memory_->open(r.ticket, other_process(r.number), r.bytes));
    case OwnerAction::kForget:
      return memory_->forget(r.number);
    case OwnerAction::kDmaBuf:
      return answer(dma_buf(r));
    case OwnerAction::kCudaMalloc:
      reply_.value = reinterpret_cast<std::uint64_t>(cuda_malloc(*memory_, r.bytes));
      return;
    case OwnerAction::kCudaFree:
      return cuda_free(*memory_, r.pointer);
    case OwnerAction::kMapRange:
      ranges_.push_back(map_range(*memory_, r.bytes, r.number, r.flag));
      reply_.value = reinterpret_cast<std::uint64_t>(ranges_.back().pointer);
      return;
    case OwnerAction::kUnmapRanges:
      for (const MappedRange& range : ranges_) unmap_range(range);
      return ranges_.clear();
    case OwnerAction::kFill:
      return fill(*memory_, r.pointer, r.bytes, static_cast<std::uint8_t>(r.number));
    case OwnerAction::kCommonByte:
      reply_.value = static_cast<std::uint64_t>(common_byte(*memory_, r.pointer, r.bytes) + 1);
      return;
    case OwnerAction::kFail:
      return fake()->fail(r.name, 1, static_cast<CUresult>(r.number));
    case OwnerAction::kCalls:
      reply_.value = fake()->calls(r.name);
      return;
    case OwnerAction::kClose:
      memory_.reset();
      if (fake() != nullptr) reply_.value = fake()->report_leaks() + fake()->counts().errors;
      return;
  }
}

int run_owner() {
  const UniqueFd link(std::atoi(std::getenv(kLink)));
  Owner owner(open_device(std::atoi(std::getenv(kOrdinal))));
  OwnerRequest request;
  while (::recv(link.get(), &request, sizeof request, 0) == sizeof request) {
    const OwnerReply reply = owner.act(request);
    if (::send(link.get(), &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) return 1;
  }
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

const RoleEntry entry(kRole, run_owner);

}  // namespace

MemoryOwner::MemoryOwner(const std::vector<std::string>& environment, int ordinal)
    : process_(kRole, with_link(environment, ordinal, &link_)) {
  their_end.reset();
}

Result<OwnerReply> MemoryOwner::ask(const OwnerRequest& request) {
  OwnerReply reply;
  if (::send(link_.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
      ::recv(link_.get(), &reply, sizeof reply, 0) != sizeof reply) {
    process_.wait();
    return Status(ErrorCode::kSystem, "the memory owner has ended: " + process_.output());
  }
  if (reply.code != ErrorCode::kOk) return Status(reply.code, reply.text, reply.rank);
  return reply;
}

Result<void*> MemoryOwner::allocate(std::size_t bytes) {
  UNISONO_ASSIGN(const OwnerReply reply, ask({.action = OwnerAction::kAllocate, .bytes = bytes}));
  return as_pointer(reply.value);
}

Status MemoryOwner::release(void* pointer) {
  return ask({.action = OwnerAction::kRelease, .pointer = pointer}).status();
}

Result<cuda::BufferTicket> MemoryOwner::ticket_of(const void* pointer, std::size_t bytes) {
  UNISONO_ASSIGN(
      const OwnerReply reply,
      ask({.action = OwnerAction::kTicket, .pointer = const_cast<void*>(pointer), .bytes = bytes}));
  return reply.ticket;
}

Result<void*> MemoryOwner::open(const cuda::BufferTicket& ticket, Rank peer, std::size_t bytes) {
  UNISONO_ASSIGN(
      const OwnerReply reply,
      ask({.action = OwnerAction::kMap, .number = peer, .bytes = bytes, .ticket = ticket}));
  return as_pointer(reply.value);
}

Status MemoryOwner::forget(Rank peer) {
  return ask({.action = OwnerAction::kForget, .number = peer}).status();
}

Result<std::uint64_t> MemoryOwner::dma_buf_offset(const void* pointer, std::size_t bytes) {
  UNISONO_ASSIGN(
      const OwnerReply reply,
      ask({.action = OwnerAction::kDmaBuf, .pointer = const_cast<void*>(pointer), .bytes = bytes}));
  return reply.value;
}

Result<void*> MemoryOwner::cuda_malloc(std::size_t bytes) {
  UNISONO_ASSIGN(const OwnerReply reply, ask({.action = OwnerAction::kCudaMalloc, .bytes = bytes}));
  return as_pointer(reply.value);
}

Status MemoryOwner::cuda_free(void* pointer) {
  return ask({.action = OwnerAction::kCudaFree, .pointer = pointer}).status();
}

Result<void*> MemoryOwner::map_range(std::size_t piece_bytes, int pieces, bool exportable) {
  UNISONO_ASSIGN(const OwnerReply reply, ask({.action = OwnerAction::kMapRange,
                                              .number = pieces,
                                              .bytes = piece_bytes,
                                              .flag = exportable}));
  return as_pointer(reply.value);
}

Status MemoryOwner::unmap_ranges() { return ask({.action = OwnerAction::kUnmapRanges}).status(); }

Status MemoryOwner::fill(void* pointer, std::size_t bytes, std::uint8_t value) {
  return ask({.action = OwnerAction::kFill, .number = value, .pointer = pointer, .bytes = bytes})
      .status();
}

int MemoryOwner::common_byte(const void* pointer, std::size_t bytes) {
  const auto reply = ask(
      {.action = OwnerAction::kCommonByte, .pointer = const_cast<void*>(pointer), .bytes = bytes});
  return reply ? static_cast<int>(reply->value) - 1 : -1;
}

Status MemoryOwner::fail(const std::string& function, CUresult result) {
  OwnerRequest request{.action = OwnerAction::kFail, .number = static_cast<std::int32_t>(result)};
  std::snprintf(request.name, sizeof request.name, "%s", function.c_str());
  return ask(request).status();
}

Result<std::uint64_t> MemoryOwner::calls(const std::string& function) {
  OwnerRequest request{.action = OwnerAction::kCalls};
  std::snprintf(request.name, sizeof request.name, "%s", function.c_str());
  UNISONO_ASSIGN(const OwnerReply reply, ask(request));
  return reply.value;
}

Result<std::uint64_t> MemoryOwner::close() {
  UNISONO_ASSIGN(const OwnerReply reply, ask({.action = OwnerAction::kClose}));
  link_.reset();
  EXPECT_EQ(process_.wait(), 0) << process_.output();
  return reply.value;
}

void MemoryOwner::die() {
  process_.kill(SIGKILL);
  EXPECT_EQ(process_.wait(), 1000 + SIGKILL);
}

}  // namespace unisono::test
