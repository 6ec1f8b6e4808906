#include "unisono/train/micro_batches.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "train/ddp/guarded.h"
#include "train/ddp/model_agreement.h"
#include "train/model/device_memory.h"

namespace unisono::train {
namespace {

// Where T(lo, hi) of `leaves` = hi - lo > 1 splits, counted from lo.
std::size_t left_leaves(std::size_t leaves) { return std::bit_floor(leaves - 1); }

double tree_sum(std::span<const double> values) {
  if (values.size() == 1) return values[0];
  const std::size_t left = left_leaves(values.size());
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

// A job's own least order comes before what a call asks for. The tree makes 1 of 1 + u and of that
// + u, where u is half of what lies between 1 and the next number; a sum that is rounded once is
// more.
void check_tree_over_ranks(Communicator& communicator) {
  if (communicator.size() < 3) return;  // one sum is rounded once anyhow
  std::array<float, 1> addend{0.0F};
  if (communicator.rank() == 0) addend[0] = 1.0F;
  if (communicator.rank() == 1 || communicator.rank() == 2) {
    addend[0] = std::numeric_limits<float>::epsilon() / 2;
  }
  communicator.all_reduce(addend, ops::sum, {.order = Order::kCanonical});
  if (addend[0] == 1.0F) return;
  throw Error(
      Status(ErrorCode::kInvalidArgument,
             "the job's order is exact, in which sums over " + std::to_string(communicator.size()) +
                 " ranks are rounded once and depend on how many ranks there are: leave "
                 "UNISONO_ORDER and InitOptions::order at any or canonical, or use at "
                 "most 2 ranks"),
      {.operation = "MicroBatchTrainer"});
}

}  // namespace

class MicroBatchTrainer::Impl {
 public:
  Impl(Model& model, Communicator& communicator, std::size_t micro_batches)
      : model_(model),
        communicator_(communicator),
        micro_batches_(micro_batches),
        count_(micro_batches / static_cast<std::size_t>(communicator.size())) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    if (micro_batches == 0 || micro_batches % ranks != 0 ||
        (ranks > 1 && !std::has_single_bit(count_))) {
      throw std::invalid_argument(std::to_string(micro_batches) + " micro-batches on " +
                                  std::to_string(ranks) +
                                  " ranks; each rank must get equally many, a power of two");
    }
    check_tree_over_ranks(communicator);
    check_same_model(model, communicator);
    broadcast_model(model, communicator);
  }

  std::size_t first() const { return count_ * static_cast<std::size_t>(communicator_.rank()); }
  std::size_t count() const { return count_; }
  Model& model() { return model_; }

  double step(std::span<const Batch> mine, const LossFunction& loss, Optimizer& optimizer,
              float learning_rate, const Pass& pass) {
    return guarded({&communicator_}, nullptr, [&] {
      check(mine, pass);
      begin_step();
      sum_gradients(0, count_, {mine, loss, pass});
      if (communicator_.size() > 1) {
        // Waited for: a stream goes on behind a call that has failed.
        communicator_
            .all_reduce_async(model_.gradients().values(), ops::sum,
                              in_stream(backend(), {.order = Order::kCanonical}))
            .wait();
      }
      train::step(optimizer, model_, learning_rate);
      merge_buffers();
      return tree_sum(gather<double>(losses_)) / static_cast<double>(micro_batches_);
    });
  }

 private:
  Backend& backend() const { return backend_of(model_.gradients()); }

  struct Work {
    std::span<const Batch> batches;
    const LossFunction& loss;
    const Pass& pass;
  };

  void check(std::span<const Batch> mine, const Pass& pass) const {
    if (mine.size() != count_) {
      throw std::invalid_argument(std::to_string(mine.size()) +
                                  " micro-batches for a step; this rank's block has " +
                                  std::to_string(count_));
    }
    for (const Batch& batch : mine) {
      if (batch.samples() == 0 || batch.samples() != mine[0].samples()) {
        throw std::invalid_argument("micro-batches of " + std::to_string(batch.samples()) +
                                    " and " + std::to_string(mine[0].samples()) +
                                    " samples; all must have the same number, and at least one");
      }
    }
    if (pass.statistics != nullptr) {
      throw std::invalid_argument(
          "statistics per micro-batch and synchronised batch norms exclude each other");
    }
  }

  void begin_step() {
    buffers_before_ = model_.buffers().read();
    buffers_after_.clear();
    losses_.clear();
  }

  // Leaves T(lo, hi) over this rank's micro-batches in the model's gradients.
  void sum_gradients(std::size_t lo, std::size_t hi, const Work& work) {
    if (hi - lo == 1) return compute_gradients(lo, work);
    const std::size_t middle = lo + left_leaves(hi - lo);
    sum_gradients(lo, middle, work);
    const std::span<float> gradients = model_.gradients().values();
    Tensor left = Tensor::uninitialised({gradients.size()}, place_of(model_.gradients()));
    backend().copy(gradients.data(), gradients.size(), left.data());
    sum_gradients(middle, hi, work);
    backend().add(left.data(), left.size(), gradients.data());
  }

  void compute_gradients(std::size_t index, const Work& work) {
    const Batch& batch = work.batches[index];
    Pass pass = work.pass;
    pass.micro_batch = first() + index;
    model_.buffers().write(buffers_before_);
    model_.gradients().zero();
    const Tensor outputs = model_.forward(batch.inputs, pass);
    Tensor output_gradient;
    losses_.push_back(work.loss(outputs, batch.targets, &output_gradient,
                                1.0F / static_cast<float>(micro_batches_)));
    model_.backward(output_gradient, pass);
    const std::vector<float> buffers = model_.buffers().read();
    buffers_after_.insert(buffers_after_.end(), buffers.begin(), buffers.end());
  }

  void merge_buffers() {
    std::vector<float> buffers(model_.buffers().values().size());
    if (buffers.empty()) return;
    const std::vector<float> all = gather<float>(buffers_after_);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      double total = 0.0;
      for (std::size_t m = 0; m < micro_batches_; ++m) {
        total += static_cast<double>(all[m * buffers.size() + i]);
      }
      buffers[i] = static_cast<float>(total / static_cast<double>(micro_batches_));
    }
    model_.buffers().write(buffers);
  }

  // What all ranks have of all their micro-batches, in micro-batch order.
  template <typename T>
  std::vector<T> gather(const std::vector<T>& mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(communicator_.size()));
    if (communicator_.size() == 1) return mine;
    communicator_.all_gather(mine, all);
    return all;
  }

  Model& model_;
  Communicator& communicator_;
  std::size_t micro_batches_, count_;
  std::vector<float> buffers_before_, buffers_after_;
  std::vector<double> losses_;
};

MicroBatchTrainer::MicroBatchTrainer(Model& model, Communicator& communicator,
                                     std::size_t micro_batches)
    : impl_(std::make_unique<Impl>(model, communicator, micro_batches)) {}
MicroBatchTrainer::~MicroBatchTrainer() = default;

std::size_t MicroBatchTrainer::first() const { return impl_->first(); }
std::size_t MicroBatchTrainer::count() const { return impl_->count(); }
Model& MicroBatchTrainer::model() { return impl_->model(); }

double MicroBatchTrainer::step(std::span<const Batch> mine, const LossFunction& loss,
                               Optimizer& optimizer, float learning_rate, Pass pass) {
  return impl_->step(mine, loss, optimizer, learning_rate, pass);
}

}  // namespace unisono::train
