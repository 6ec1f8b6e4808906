// The strategies of ranks, which are threads here. Each communicator's counters are read before the
// first counted step and after the last.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <system_error>

#include "tools/train/compare_run.h"
#include "tools/train/compare_sums.h"
#include "unisono/communicator.h"
#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/models.h"
#include "unisono/train/scatter_chunks.h"
#include "unisono/train/sync_batch_norm.h"
#include "unisono/train/zero.h"

namespace unisono::train::comparison {
namespace {

constexpr CallOptions kRing{.algorithm = "ring"};

/// Threads of this process; empty where the system does not tell.
std::set<std::string> threads_alive() {
  std::set<std::string> threads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    threads.insert(entry.path().filename().string());
  }
  return threads;
}

/// A rank's loss such that the mean over ranks is the mean over samples.
LossFunction weighted_loss(float weight) {
  return [weight](const Tensor& outputs, std::span<const std::int32_t> targets, Tensor* gradient,
                  float scale) {
    return static_cast<double>(weight) * cross_entropy(outputs, targets, gradient, scale * weight);
  };
}

/// One rank's replica behind either strategy.
class Replica {
 public:
  Replica(const Workload& workload, const RankStrategy& strategy, Communicator& communicator)
      : model_(workload.make_model()), rate_(workload.rate) {
    if (strategy.sync_batch_norm) {
      convert_sync_batch_norm(*model_);
      statistics_ = std::make_unique<SyncBatchNormExchange>(communicator);
    }
    if (strategy.zero) {
      zero_ = std::make_unique<ZeroOptimizer>(
          *model_, communicator, workload.make_optimizer,
          ZeroOptions{.broadcast_buffers = strategy.broadcast_buffers,
                      .reduction = kRing,
                      .gather = kRing});
      return;
    }
    DdpOptions options;
    options.static_graph = !strategy.find_unused;
    options.find_unused_parameters = strategy.find_unused;
    options.broadcast_buffers = strategy.broadcast_buffers;
    options.reduction = kRing;
    optimizer_ = workload.make_optimizer(model_->parameters().values().size());
    ddp_ = std::make_unique<DistributedDataParallel>(*model_, communicator, options);
  }

  double step(const Batch& batch, const LossFunction& loss) {
    Pass pass;
    pass.statistics = statistics_.get();
    if (zero_) return zero_->step(batch, loss, rate_, std::move(pass));
    return ddp_->step(batch, loss, *optimizer_, rate_, std::move(pass));
  }

  TrafficReport control() { return (zero_ ? zero_->control() : ddp_->control()).traffic(); }
  TrafficReport statistics() {
    return statistics_ ? statistics_->communicator().traffic() : TrafficReport{};
  }
  bool is_settled() const { return zero_ || ddp_->buckets_are_final(); }

  std::vector<TrafficReport> predicted(int ranks) const {
    const Arena& parameters = model_->parameters();
    if (zero_) return zero_traffic(parameters.values().size(), ranks);
    std::vector<std::uint64_t> buckets;
    for (const std::vector<int>& bucket : ddp_->buckets()) {
      std::uint64_t count = 0;
      for (const int parameter : bucket) {
        count += parameters.entries()[static_cast<std::size_t>(parameter)].count;
      }
      buckets.push_back(count);
    }
    return ddp_traffic(buckets, ranks);
  }

 private:
  std::unique_ptr<Model> model_;
  float rate_;
  std::unique_ptr<SyncBatchNormExchange> statistics_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<ZeroOptimizer> zero_;
};

/// What the ranks' threads leave behind: each its own entry of `members`, rank 0 the rest.
struct Job {
  const Workload& workload;
  const RankStrategy& strategy;
  const Span& span;
  Cost& cost;
  std::vector<double>& seconds;
};

/// One rank's way through the steps.
class Walk {
 public:
  Walk(Job& job, Communicator& communicator)
      : job_(job), communicator_(communicator), uncounted_(communicator.duplicate()) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    std::vector<std::size_t> chunks =
        even_chunks(job.workload.samples(), static_cast<std::size_t>(communicator.size()));
    chunks.resize(static_cast<std::size_t>(communicator.size()));
    for (std::size_t i = 0; i < rank; ++i) first_ += chunks[i];
    count_ = chunks[rank];
    weight_ =
        static_cast<float>(count_ * chunks.size()) / static_cast<float>(job.workload.samples());
  }

  void go() {
    DeviceMemory memory = memory_of_rank(job_.workload, communicator_.rank());
    const DeviceMemory::Scope scope(memory);
    const TrafficReport before = communicator_.traffic();
    Replica replica(job_.workload, job_.strategy, communicator_);
    Member& member = job_.cost.members[static_cast<std::size_t>(communicator_.rank())];
    member.samples = count_;
    member.once = communicator_.traffic() - before + replica.control();
    take_steps(replica, 0, job_.span.warm_up);
    if (!replica.is_settled() && !job_.strategy.find_unused) {
      throw std::invalid_argument("buckets have their final form after 2 steps of warm-up, not " +
                                  std::to_string(job_.span.warm_up));
    }
    memory.reset_peak();
    count_steps(replica, memory, &member);
    member.peak_memory = memory.use().peak;
    if (communicator_.rank() == 0) job_.cost.predicted = replica.predicted(communicator_.size());
    uncounted_.barrier();
  }

 private:
  double take_steps(Replica& replica, std::size_t first, std::size_t steps) {
    double loss = 0;
    const LossFunction of_share = weighted_loss(weight_);
    for (std::size_t step = first; step < first + steps; ++step) {
      loss = replica.step(slice(job_.workload.batch(step), first_, count_), of_share);
    }
    return loss;
  }

  void count_steps(Replica& replica, DeviceMemory& memory, Member* member) {
    const bool is_first = communicator_.rank() == 0;
    memory.wait();
    uncounted_.barrier();
    std::set<std::string> threads;
    if (is_first) threads = threads_alive();
    const TrafficReport gradients = communicator_.traffic(), control = replica.control(),
                        statistics = replica.statistics();
    uncounted_.barrier();
    const auto start = std::chrono::steady_clock::now();
    const double loss = take_steps(replica, job_.span.warm_up, job_.span.steps);
    memory.wait();
    job_.seconds[static_cast<std::size_t>(communicator_.rank())] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    member->traffic = communicator_.traffic() - gradients;
    member->control = replica.control() - control;
    member->statistics = replica.statistics() - statistics;
    uncounted_.barrier();
    if (!is_first) return;
    job_.cost.loss = loss;
    for (const std::string& thread : threads_alive()) {
      job_.cost.threads_started += threads.contains(thread) ? 0 : 1;
    }
  }

  Job& job_;
  Communicator& communicator_;
  Communicator uncounted_;  ///< whose calls the report leaves out
  std::size_t first_ = 0, count_ = 0;
  float weight_ = 1.0F;
};

}  // namespace

Cost run_ranks(const Workload& workload, const RankStrategy& strategy, const Span& span) {
  Cost cost;
  cost.strategy = strategy.name;
  cost.is_on_gpus = !workload.gpus.empty();
  cost.samples = workload.samples();
  cost.steps = span.steps;
  cost.members.resize(static_cast<std::size_t>(workload.devices));
  std::vector<double> seconds(cost.members.size());
  Job job{workload, strategy, span, cost, seconds};
  SpawnOptions options;
  options.transport = workload.transport;
  options.devices = workload.gpus;
  spawn(
      workload.devices, [&](Communicator& communicator) { Walk(job, communicator).go(); }, options);
  cost.seconds = *std::max_element(seconds.begin(), seconds.end());
  return cost;
}

bool is_as_predicted(const Cost& cost) {
  for (std::size_t i = 0; i < cost.members.size(); ++i) {
    const TrafficReport predicted = times(cost.predicted[i], cost.steps);
    const TrafficReport& measured = cost.members[i].traffic;
    const bool is_equal =
        cost.is_on_gpus ? measured.calls == predicted.calls : are_equal(measured, predicted);
    if (!is_equal) return false;
  }
  return true;
}

std::vector<TrafficReport> traffic_of(const Cost& cost) {
  std::vector<TrafficReport> traffic;
  for (const Member& member : cost.members) traffic.push_back(member.traffic);
  return traffic;
}

}  // namespace unisono::train::comparison
