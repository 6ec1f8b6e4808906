#include "rendezvous/sessions/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/grace_periods.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kSettingShownMax = 500;

// The first line of both texts that differs: "NAME=value" each, in the same order.
struct Difference {
  std::string_view name, first, second;
};

Difference first_difference(std::string_view first, std::string_view second) {
  const auto take_line = [](std::string_view* text) {
    const std::string_view line = text->substr(0, text->find('\n'));
    text->remove_prefix(std::min(line.size() + 1, text->size()));
    return line;
  };
  for (;;) {
    const std::string_view a = take_line(&first), b = take_line(&second);
    if (a == b && !first.empty() && !second.empty()) continue;
    const std::size_t equals = a.find('=');
    if (a == b || equals == std::string_view::npos ||
        a.substr(0, equals + 1) != b.substr(0, std::min(b.size(), equals + 1))) {
      return {"settings", a, b};
    }
    return {a.substr(0, equals), a.substr(equals + 1), b.substr(equals + 1)};
  }
}

// `wrong` is to have the settings of `right`; of two newcomers nobody knows which.
Status differing(const Member& right, const Member& wrong) {
  const Difference what = first_difference(right.settings, wrong.settings);
  return {
      ErrorCode::kMismatch,
      fmt::format("{} and {} differ in {}, which all ranks must share: '{}' and '{}'",
                  member_text(right), member_text(wrong), shortened(std::string(what.name), 100),
                  shortened(std::string(what.first), kSettingShownMax),
                  shortened(std::string(what.second), kSettingShownMax)),
      right.is_newcomer ? -1 : wrong.rank};
}

}  // namespace

Status Rendezvous::admit(Member member, int size) {
  if (size != size_) {
    return {ErrorCode::kRendezvous,
            fmt::format("{} says that the world has {} ranks, rank 0 says {}; start all ranks with "
                        "the same world size",
                        member_text(member), size, size_),
            member.rank};
  }
  if (member.rank < 0 || member.rank >= size_) {
    return {ErrorCode::kRendezvous,
            fmt::format("rank {} is not within 0 to {}", member.rank, size_ - 1), member.rank};
  }
  std::optional<Member>& seat = seats_[static_cast<std::size_t>(member.rank)];
  if (seat) {
    return {ErrorCode::kRendezvous,
            fmt::format("rank {} was given twice: first to host {}, pid {}, then to host {}, pid "
                        "{}; give every process its own rank",
                        member.rank, seat->host_name, seat->pid, member.host_name, member.pid),
            member.rank};
  }
  const Member* const other = any_with_settings();
  if (other != nullptr && !member.settings.empty() && other->settings != member.settings) {
    return other->is_newcomer && !member.is_newcomer ? differing(member, *other)
                                                     : differing(*other, member);
  }
  departed_.erase(member.rank);
  seat = std::move(member);
  ++arrived_;
  return {};
}

void Rendezvous::depart(Rank rank, TimePoint now, bool is_end) {
  std::optional<Member>& seat = seats_[static_cast<std::size_t>(rank)];
  if (!seat) return;
  const Duration returns_in = comes_once_ && is_end ? Duration() : Duration(grace::kReturn);
  departed_[rank] = {std::move(*seat), now + returns_in};
  seat.reset();
  --arrived_;
}

Status Rendezvous::lost(TimePoint now) const {
  for (const auto& [rank, departed] : departed_) {
    if (now < departed.until) continue;
    return {ErrorCode::kRankFailed,
            fmt::format("{} died or gave up before all ranks had arrived: its connection closed{}",
                        member_text(departed.member),
                        comes_once_ ? ""
                                    : ", and it did not come again within " +
                                          duration_text(grace::kReturn)),
            rank};
  }
  return {};
}

TimePoint Rendezvous::next_due() const {
  TimePoint due = warn_at_;
  for (const auto& [rank, departed] : departed_) due = std::min(due, departed.until);
  return due;
}

std::vector<Rank> Rendezvous::missing() const {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!has_arrived(rank)) missing.push_back(rank);
  }
  return missing;
}

std::string Rendezvous::take_warning(TimePoint now) {
  if (complete() || now < warn_at_) return "";
  warn_at_ = kNever;
  const std::vector<Rank> awaited = missing();
  return fmt::format(
      "rank 0: {} of {} {} not arrived after {}; waiting until the deadline (UNISONO_TIMEOUT)",
      ranks_text(awaited), size_, awaited.size() == 1 ? "has" : "have",
      duration_text(now - started_));
}

Status Rendezvous::overdue(TimePoint now) const {
  const std::vector<Rank> missing = this->missing();
  std::string text = fmt::format("{} of {} did not arrive within {}", ranks_text(missing), size_,
                                 duration_text(now - started_));
  if (!departed_.empty()) {
    text += fmt::format("; {} came and left again", member_text(departed_.begin()->second.member));
  }
  return {ErrorCode::kRendezvous, text, missing.size() == 1 ? missing[0] : -1};
}

std::vector<Member> Rendezvous::take_members() {
  UNISONO_ASSERT(complete(), "members are taken once all have arrived");
  std::vector<Member> members;
  members.reserve(seats_.size());
  for (auto& seat : seats_) members.push_back(std::move(*seat));
  return members;
}

const Member* Rendezvous::any_with_settings() const {
  const Member* found = nullptr;
  for (const auto& seat : seats_) {
    if (!seat || seat->settings.empty()) continue;
    if (!seat->is_newcomer) return &*seat;
    found = &*seat;
  }
  return found;
}

}  // namespace unisono::rendezvous
