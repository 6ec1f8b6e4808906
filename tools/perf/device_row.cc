// What goes between host and device goes in pieces: the host never holds a whole buffer.
#include "tools/perf/device_row.h"

#include <algorithm>

#include "tools/perf/measure.h"
#include "tools/perf/pattern.h"

namespace unisono::perf {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
/// More slots than this are filled with a constant at first instead of the input.
constexpr int kSlotsCopied = 64;

}  // namespace

DeviceRow::DeviceRow(Communicator& communicator, DeviceBuffers& device, Arena& arena,
                     const Slots& slots, const Problem& problem)
    : communicator_(communicator),
      device_(device),
      arena_(arena),
      slots_(slots),
      problem_(problem),
      in_bytes_(in_elements(problem) * size_of(problem.type)) {
  const Placement first = place(problem, slots.in(0), slots.out(0));
  in_offset_ = static_cast<std::size_t>(first.in - slots.in(0));
  out_offset_ = static_cast<std::size_t>(first.out - slots.in(0));
  select(0);
  on_host_.resize(std::min(
      kPieceBytes, std::max<std::size_t>(slots.in_stride + slots.out_stride, kPeriod * 16)));
  write_pristine();
}

DeviceRow::~DeviceRow() {
  try {
    if (pristine_ != nullptr) device_.release(pristine_);
  } catch (const Error&) {
    // Whatever broke the device has been reported by the call that met it.
  }
}

void DeviceRow::write_pristine() {
  if (in_bytes_ == 0) return;
  pristine_ = device_.allocate(in_bytes_);
  const Pattern input = input_of(problem_, problem_.rank);
  const std::size_t element = size_of(problem_.type);
  const std::size_t piece = on_host_.size() / element;
  const std::size_t count = in_bytes_ / element;
  for (std::size_t at = 0; at < count; at += piece) {
    const std::size_t part = std::min(piece, count - at);
    input.write(on_host_.data(), at, part);
    device_.copy(pristine_ + at * element, on_host_.data(), part * element);
    device_.finish();
  }
}

void DeviceRow::sweep() {
  if (slots_.count > kSlotsCopied) {
    arena_.sweep();
  } else {
    for (int k = 0; k < slots_.count; ++k) {
      device_.copy(slots_.in(k) + in_offset_, pristine_, in_bytes_);
    }
  }
  device_.finish();
}

std::uint64_t DeviceRow::check(RankSync& sync) {
  select(0);
  device_.fill(slot_, 0xff, slots_.in_stride + slots_.out_stride);
  device_.copy(in(), pristine_, in_bytes_);
  device_.finish();
  sync.barrier();
  run();
  device_.finish();
  std::uint64_t wrong = 0;
  for (const Expected& part : problem_.measured->expect(problem_)) wrong += count_wrong(part);
  return wrong;
}

std::uint64_t DeviceRow::count_wrong(const Expected& part) {
  const Pattern pattern = result_of(problem_, part);
  const std::size_t element = size_of(problem_.type);
  const std::size_t piece = on_host_.size() / element;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < part.count; at += piece) {
    const std::size_t count = std::min(piece, part.count - at);
    device_.copy(on_host_.data(), out() + (part.offset + at) * element, count * element);
    device_.finish();
    wrong += pattern.count_wrong(on_host_.data(), part.first_index + at, count);
  }
  return wrong;
}

}  // namespace unisono::perf
