#include "cuda/collectives/host_part.h"

namespace unisono {

void HostPart::serve(const Call& served) {
  call_.reset(served);
  call_.record = backends_.device_record_of(served);
  call_.sequence = 0;
  call_.is_numbered = false;
  call_.first_sequence.reset();
}

Status HostPart::start_metadata_exchange(const Call& served, std::span<const std::byte> mine,
                                         std::span<std::byte> all) {
  UNISONO_ASSIGN(operation_, backends_.start_metadata_exchange(call_, served, mine, all));
  note_number();
  return Status();
}

Status HostPart::start(const Call& part, const HostBackends::Checked& checked) {
  call_.reset(part);
  UNISONO_ASSIGN(operation_, backends_.start(call_, checked));
  note_number();
  return Status();
}

void HostPart::note_number() {
  if (call_.is_numbered && !call_.first_sequence) call_.first_sequence = call_.sequence;
}

Result<bool> HostPart::advance() {
  if (!operation_->advance()) return false;
  const Status outcome = operation_->status();
  end(outcome.ok());
  UNISONO_TRY(outcome);
  return true;
}

void HostPart::fail(const Status& cause) {
  if (operation_ == nullptr) return;
  operation_->fail(cause);
  end(false);
}

void HostPart::end(bool succeeded) {
  operation_ = nullptr;
  call_.backend->end(call_, succeeded);
  if (succeeded) call_.is_numbered = false;  // else it is the one that has failed
}

}  // namespace unisono
