// What a collective of the process group returns: requests of the C API as a c10d::Work.
#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "unisono/unisono.h"

namespace unisono_torch {

/// The ranks of a group in the world, by their rank in the group. Empty: not known.
using GlobalRanks = std::vector<uint64_t>;

/// Ranks of a group as messages name them: by their global ranks too, where these are others.
std::string ranks_text(const std::vector<int>& ranks, const GlobalRanks& global_ranks);
/// The last error of this thread, with its rank.
std::string last_error_text(const std::string& operation, const GlobalRanks& global_ranks = {});
/// The same as an exception of torch, which names the rank at fault.
std::exception_ptr last_error(const std::string& operation, const GlobalRanks& global_ranks = {});
/// Throws it where `code` is a failure.
void check(unisono_code code, const char* operation, const GlobalRanks& global_ranks = {});

/// What a call uses until no peer can touch it any more.
struct Lent {
  struct Copy {
    at::Tensor from;
    std::vector<at::Tensor> to;
  };
  std::vector<at::Tensor> tensors;
  std::deque<std::vector<size_t>> counts;
  /// What has to be put into the outputs after a success, because it could not come there itself,
  /// and how many of them are there.
  std::vector<Copy> copies;
  size_t copied = 0;
  /// All requests of the call were started.
  bool is_whole = false;
  /// Nobody waits for the call: the end of the last who has this is the end of the call.
  std::atomic<bool> is_abandoned{false};
  std::atomic<bool> has_failed{false};

  ~Lent();
  void finish();
};

/// A call on the tensors of a GPU is over, for this class, once its work has its place in a stream:
/// wait() has the current stream wait, and futures record that stream. What fails later shows in
/// the group's next call.
///
/// Any thread. Whoever finds the end first (a waiter, somebody who tests, or a thread of
/// completions.h where a future was asked for) calls Lent::finish() and completes the future.
class UnisonoWork : public c10d::Work {
 public:
  /// `operation`, and `title`, which profiles show, live for ever.
  UnisonoWork(int rank, c10d::OpType type, const char* operation, const char* title,
              std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
              std::shared_ptr<Lent> lent, std::shared_ptr<const GlobalRanks> global_ranks);
  ~UnisonoWork() override;

  /// Takes a started request over. Before the work is given to anybody.
  void add(unisono_request* request) { requests_.push_back(request); }

  /// Which of the group's calls it is. Before the work is given to anybody.
  void number(uint64_t sequence) { sequence_ = sequence; }
  bool is_message() const { return c10d::isP2POp(opType_); }

  /// All requests are begun and their work is in `stream`. Before the work is given to anybody.
  void put_in(const c10::Stream& stream);
  bool is_in_stream() const { return place_.has_value(); }

  bool isCompleted() override;
  bool isSuccess() const override;
  /// With a time-out, and of messages, the caller waits and not its stream.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Newer than the oldest version of torch: no `override`.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult();
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  using Self = c10::intrusive_ptr<UnisonoWork>;
  // Where the work is, and behind it.
  struct Place {
    c10::Stream stream;
    c10::Event end;
  };

  bool has_failed() const;
  std::exception_ptr last_failure() const { return last_error(operation_, *global_ranks_); }
  std::exception_ptr short_message() const;
  Place place_in(const c10::Stream& stream) const;
  void copy_out();
  void block_current_stream() const;
  c10::intrusive_ptr<c10::ivalue::Future> future_in_stream();
  bool abandon(unisono_request* request);
  static void end_one(Self work);
  bool test();
  void await(std::chrono::milliseconds timeout);
  void await_conclusion();
  void conclude(std::exception_ptr failure);
  void watch();
  template <typename Complete>
  c10::intrusive_ptr<c10::ivalue::Future> future_in(c10::intrusive_ptr<c10::ivalue::Future>& slot,
                                                    const c10::TypePtr& type,
                                                    const Complete& complete);
  void complete_result(c10::ivalue::Future& future, const std::exception_ptr& failure);
  static void complete_outcome(c10::ivalue::Future& future, const std::exception_ptr& failure);

  std::vector<unisono_request*> requests_;
  const std::vector<at::Tensor> outputs_;
  std::shared_ptr<Lent> lent_;
  uint64_t sequence_ = 0;
  const char* const operation_;
  const std::shared_ptr<const GlobalRanks> global_ranks_;
  std::optional<Place> place_;
  // Of a message on a GPU: where what it brought was copied out. Set before the work is completed.
  std::optional<Place> copied_;
  std::atomic<bool> concluding_{false};
  std::atomic<int> unfinished_{0};  // of the requests, once they are watched
  std::atomic<bool> is_watched_{false};
  bool has_told_ = false;  // those who asked for a future so far; under mutex_, as the futures
  c10::intrusive_ptr<c10::ivalue::Future> future_, outcome_;
};

/// Several works as one.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override;
  std::exception_ptr exception() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Newer than the oldest version of torch: no `override`.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult();
  /// The last one's.
  uint64_t getSequencenumber() const override;

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_on(const c10::Device& device);

  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace unisono_torch
