// scatter_objects: the root tells all sizes first, then small objects go packed in rounds and large
// ones from where they are to where they stay.
#include <algorithm>
#include <cstring>

#include "comm/kept_communicator.h"
#include "objects/transfer.h"

namespace unisono {
namespace {

using namespace objects;

using Objects = std::span<const std::span<const std::byte>>;

class Scatter {
 public:
  Scatter(Communicator& communicator, Kind kind, Objects objects, Rank root,
          const ObjectOptions& options)
      : communicator_(communicator),
        kind_(kind),
        objects_(communicator.rank() == root ? objects : Objects{}),
        root_(root),
        rank_(communicator.rank()),
        options_(options),
        inner_(options_of_collectives(options.call)) {}

  ObjectBytes run(const std::exception_ptr& failure) {
    const Agreement agreement = announce_part(communicator_, own_announcement(), failure, options_);
    agree_on_sizes(agreement);
    allocate_result(communicator_, kind_, sum_of(sizes_), inner_,
                    [&] { result_.resize(sizes_[static_cast<std::size_t>(rank_)]); });
    move_guarded(communicator_, kind_, [&] {
      if (rank_ == root_ && !result_.empty()) {
        std::memcpy(result_.data(), own_object().data(), result_.size());
      }
      move_small(agreement.staging);
      move_large(agreement.staging);
    });
    return std::move(result_);
  }

 private:
  std::span<const std::byte> own_object() const {
    return objects_[static_cast<std::size_t>(rank_)];
  }

  Announcement own_announcement() const {
    Announcement own = announcement_of(communicator_, kind_, {}, root_);
    if (rank_ != root_ || own.refusal != Refusal::kNone) return own;
    if (objects_.size() != static_cast<std::size_t>(communicator_.size())) {
      own.refusal = Refusal::kBlobCount;
      own.detail = objects_.size();
    }
    for (const std::span<const std::byte> object : objects_) {
      own.bytes = std::max<std::uint64_t>(own.bytes, object.size());
      if (own.refusal == Refusal::kNone && object.data() == nullptr && !object.empty()) {
        own.refusal = Refusal::kNoBytes;
        own.detail = object.size();
      }
    }
    return own;
  }

  // Everyone sees what the root tells, and judges it alike.
  void agree_on_sizes(const Agreement& agreement) {
    move_guarded(communicator_, kind_,
                 [&] { sizes_.resize(static_cast<std::size_t>(communicator_.size())); });
    for (std::size_t r = 0; r < objects_.size(); ++r) sizes_[r] = objects_[r].size();
    communicator_.broadcast(sizes_.data(), sizes_.size(), DataType::kUint64, root_, inner_);
    const std::uint64_t largest = agreement.bytes[static_cast<std::size_t>(root_)];
    std::uint64_t total = 0;
    for (const std::uint64_t size : sizes_) {
      if (size <= largest && !__builtin_add_overflow(total, size, &total)) continue;
      fail(communicator_, kind_,
           Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(root_) + " announced an object of " +
                      std::to_string(size) + " bytes after a largest of " + std::to_string(largest),
                  root_));
    }
  }

  void move_small(std::uint64_t bound) {
    std::vector<std::uint64_t> sizes = small_sizes(sizes_);
    sizes[static_cast<std::size_t>(root_)] = 0;
    Rounds rounds(std::move(sizes), bound);
    Staging staging(rank_ == root_ ? rounds.bytes_max() : 0);
    while (rounds.next()) {
      for (std::size_t r = 0; r < objects_.size(); ++r) {
        if (rounds.counts()[r] == 0) continue;
        std::memcpy(staging.data() + rounds.places()[r], objects_[r].data() + rounds.offsets()[r],
                    rounds.counts()[r]);
      }
      const auto own = static_cast<std::size_t>(rank_);
      communicator_.scatter_v(staging.data(), rounds.counts(), rounds.places(),
                              rank_ == root_ ? nullptr : result_.data() + rounds.offsets()[own],
                              rounds.counts()[own], kByte, root_, inner_);
    }
  }

  void move_large(std::uint64_t staging) {
    std::vector<std::size_t> counts(sizes_.size(), 0);
    for_each_large(sizes_, staging, [&](Rank target, std::uint64_t offset, std::size_t count) {
      if (target == root_) return;
      const auto index = static_cast<std::size_t>(target);
      counts[index] = count;
      communicator_.scatter_v(rank_ == root_ ? objects_[index].data() + offset : nullptr, counts,
                              {}, rank_ == target ? result_.data() + offset : nullptr,
                              rank_ == target ? count : 0, kByte, root_, inner_);
      counts[index] = 0;
    });
  }

  Communicator& communicator_;
  const Kind kind_;
  const Objects objects_;
  const Rank root_;
  const Rank rank_;
  const ObjectOptions& options_;
  const CallOptions inner_;
  std::vector<std::uint64_t> sizes_;
  ObjectBytes result_;
};

ObjectBytes scatter(KeptCommunicator communicator, Kind kind, Objects objects, Rank root,
                    const ObjectOptions& options, const std::exception_ptr& failure = nullptr) {
  check_member(communicator, kind);
  return Scatter(communicator, kind, objects, root, options).run(failure);
}

}  // namespace

ObjectBytes scatter_objects(Communicator& communicator, Objects objects, Rank root,
                            const ObjectOptions& options) {
  return scatter(communicator, Kind::kScatter, objects, root, options);
}

namespace detail {

ObjectBytes scatter_encoded(Communicator& communicator, const std::vector<Encoded>& objects,
                            Rank root, const ObjectOptions& options) {
  std::vector<std::span<const std::byte>> views;
  std::exception_ptr failure;
  for (const Encoded& object : objects) {
    views.push_back(object.bytes);
    if (failure == nullptr) failure = object.failure;
  }
  return scatter(communicator, Kind::kScatterValues, views, root, options, failure);
}

}  // namespace detail
}  // namespace unisono
