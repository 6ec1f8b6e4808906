#include "backend/host_backends.h"

#include <utility>

namespace unisono {
namespace {

std::uint8_t hint_number(Collective collective, std::string_view hint) {
  if (hint.empty()) return kRecordSelected;
  if (hint == "native") return kRecordNative;
  std::uint8_t number = 1;
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != collective) continue;
    if (algorithm.name == hint) return number;
    ++number;
  }
  return kRecordUnknownAlgorithm;
}

}  // namespace

HostBackends::HostBackends(Context context)
    : members_(context.members),
      averaged_ranks_(members_.size()),
      traffic_(members_.size()),
      selection_(context.circumstances),
      recorder_(context.recorder, members_.id()),
      plans_(context.engine.messenger(), context.scratch, members_, calls_, traffic_),
      shared_memory_(
          std::move(context.group),
          {context.engine, calls_, traffic_, recorder_, std::move(context.on_disagreement)},
          averaged_ranks_),
      messages_(context.engine.messenger(), members_, traffic_, recorder_) {}

void HostBackends::set_averaged_ranks(int ranks) {
  averaged_ranks_ = ranks;
  shared_memory_.set_averaged_ranks(ranks);
}

CallRecord HostBackends::record_of(const Call& call) const {
  return make_record(
      call, selection_.order_of(call), calls_.digest(),
      hint_number(call.collective, selection_.hint_for(call.collective, call.options.algorithm)));
}

CallRecord HostBackends::device_record_of(const Call& call) const {
  return make_record(call, selection_.order_of(call), calls_.digest(), kRecordOnDevice);
}

Tried HostBackends::try_run(const Call& call, Checked* checked, Status* failure) {
  if (names_algorithm(call.options) || shared_memory_.has_failed()) return Tried::kNotBegun;
  const Tried again = shared_memory_.try_again(call, failure);
  if (again != Tried::kNotBegun || !shared_memory_.is_idle()) return again;
  CallShape shape;
  *failure = check_call(call, members_.self(), members_.size(), &shape);
  if (!*failure) return Tried::kRefused;
  Result<algorithms::Choice> choice = selection_.select(call, shape);
  if (!choice || choice->algorithm != nullptr) {
    checked->shape = shape;
    checked->choice = std::move(choice);
    return Tried::kNotBegun;
  }
  return shared_memory_.try_run(call, shape, selection_.order_of(call), record_of(call),
                                choice->path, failure);
}

Result<Operation*> HostBackends::start(StartedCall& call, const Checked& checked) {
  if (is_point_to_point(call.call.collective)) {
    call.backend = &messages_;
    return messages_.start(call, checked.shape);
  }
  if (checked.reduction) {
    call.reduction = checked.reduction;
  } else if (reduces(call.call.collective)) {
    UNISONO_ASSIGN(call.reduction,
                   compute::Reduction::make(call.call.type, call.call.op, averaged_ranks_,
                                            selection_.order_of(call.call)));
  }
  call.record = record_of(call.call);
  if (checked.is_part) call.record.op |= kRecordPart;
  return start_collective(
      call, checked.shape,
      checked.choice ? *checked.choice : selection_.select(call.call, checked.shape));
}

Result<HostBackends::Checked> HostBackends::check(const Call& call, const CallShape& shape) {
  Checked checked(shape);
  if (is_point_to_point(call.collective)) return checked;
  if (reduces(call.collective)) {
    UNISONO_ASSIGN(checked.reduction, compute::Reduction::make(call.type, call.op, averaged_ranks_,
                                                               selection_.order_of(call)));
  }
  UNISONO_ASSIGN(checked.choice, selection_.select(call, shape));
  return checked;
}

Result<Operation*> HostBackends::start_collective(StartedCall& call, const CallShape& shape,
                                                  Result<algorithms::Choice> choice) {
  UNISONO_ASSIGN(call.choice, std::move(choice));
  call.backend = &plans_;
  if (call.choice.algorithm == nullptr) call.backend = &shared_memory_;
  return call.backend->start(call, shape);
}

Result<Operation*> HostBackends::start_metadata_exchange(StartedCall& exchange, const Call& served,
                                                         std::span<const std::byte> mine,
                                                         std::span<std::byte> all) {
  exchange.reset({.collective = Collective::kAllGather,
                  .in = mine.data(),
                  .out = all.data(),
                  .count = mine.size()});
  exchange.is_counted = false;
  exchange.record = device_record_of(served);
  CallShape shape;
  UNISONO_TRY(check_call(exchange.call, members_.self(), members_.size(), &shape));
  return start_collective(exchange, shape,
                          selection_.select(Collective::kAllGather, shape.agreed_bytes));
}

}  // namespace unisono
