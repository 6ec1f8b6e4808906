#include "rendezvous/store/wait_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/handshake.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/process_facts.h"
#include "rendezvous/messages/rank_text.h"
#include "rendezvous/store/store_access.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;

// How often whoever waits for one key looks at the others.
constexpr Duration kListLookEvery = milliseconds(100);
constexpr std::size_t kHandleDigits = 32;
constexpr std::size_t kEntryBytesMax = 256;
constexpr std::string_view kFormat = "2";
constexpr std::string_view kCrossedOut = "-";
constexpr std::string_view kHere = "here";
constexpr std::string_view kGone = "gone";
constexpr std::string_view kUntold = "?";

std::string list_of(std::string_view name) { return fmt::format("unisono/grow/{}/", name); }
std::string first_key(const std::string& list) { return list + "first"; }
std::string place_key(const std::string& list, int place) {
  return fmt::format("{}place/{}", list, place);
}
std::string question_key(const std::string& list, const std::string& handle) {
  return fmt::format("{}{}/question", list, handle);
}
std::string answer_key(const std::string& list, const std::string& handle,
                       const std::string& group) {
  return fmt::format("{}{}/{}", list, handle, group);
}
std::string invitation_key(const std::string& list, const std::string& handle,
                           const std::string& group) {
  return fmt::format("{}{}/invitation/{}", list, handle, group);
}

bool is_handle(std::string_view text) {
  return text.size() == kHandleDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kProcessNameBytesMax &&
         text.find(' ') == std::string_view::npos;
}

// The words of a text that has exactly so many.
template <std::size_t N>
bool split_words(std::string_view text, std::array<std::string_view, N>* words) {
  if (text.size() > kEntryBytesMax) return false;
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t space = text.find(' ');
    if ((space == std::string_view::npos) != (i + 1 == N)) return false;
    (*words)[i] = text.substr(0, space);
    text.remove_prefix(std::min(text.size(), space + 1));
  }
  return true;
}

std::optional<WaitList::Newcomer> parse_entry(std::string_view text, int place) {
  std::array<std::string_view, 4> words;
  WaitList::Newcomer newcomer{.place = place};
  if (!split_words(text, &words) || words[0] != kFormat || !is_handle(words[1]) ||
      !read_number(words[2], &newcomer.key) || words[3].size() > kProcessNameBytesMax) {
    return {};
  }
  newcomer.handle = words[1];
  if (words[3] != kUntold) newcomer.process = words[3];
  return newcomer;
}

std::string invitation_text(const Invitation& invitation) {
  return fmt::format("{} {} {} {} {}", kFormat, invitation.job, invitation.rank, invitation.size,
                     invitation.timeout.count());
}

std::optional<Invitation> parse_invitation(std::string_view text) {
  std::array<std::string_view, 5> words;
  Invitation invitation;
  milliseconds::rep timeout = 0;
  if (!split_words(text, &words) || words[0] != kFormat || !is_handle(words[1]) ||
      !read_number(words[2], &invitation.rank) || !read_number(words[3], &invitation.size) ||
      !read_number(words[4], &timeout)) {
    return {};
  }
  if (invitation.size < 2 || invitation.size > kWorldSizeMax || invitation.rank < 0 ||
      invitation.rank >= invitation.size || timeout < 0 || timeout > kMeetTimeMax.count()) {
    return {};
  }
  invitation.job = words[1];
  invitation.timeout = milliseconds(timeout);
  return invitation;
}

// 0 where it is not set, or makes no sense.
Result<int> read_first(Store& store, const std::string& list) {
  UNISONO_ASSIGN(const std::string text, get_from_store(store, first_key(list), TimePoint()));
  int first = 0;
  if (!read_number(text, &first) || first < 0 || first > kPlacesMax) return 0;
  return first;
}

Status list_is_full(const std::string& list) {
  return {ErrorCode::kOutOfResources,
          fmt::format("the {} places of '{}' in the store are used up; take another name",
                      kPlacesMax, list)};
}

}  // namespace

std::string random_group() { return random_hex(kHandleDigits); }

// ---- Rank 0 of the group ------------------------------------------------------------------------

WaitList::WaitList(Store& store, std::string_view name, std::string group, HasEnded has_ended)
    : store_(store),
      list_(list_of(name)),
      group_(std::move(group)),
      has_ended_(std::move(has_ended)) {}

Result<std::vector<WaitList::Newcomer>> WaitList::find(const Wanted& wanted,
                                                       const std::function<Status()>& go_on) {
  for (;;) {
    UNISONO_TRY(go_on());
    UNISONO_TRY(read_places(go_on));
    UNISONO_TRY(read_answers());
    std::vector<Newcomer> newcomers = present(wanted.at_most);
    const int count = static_cast<int>(newcomers.size());
    if (count == wanted.at_most) return newcomers;
    if (!awaits_answers() && (count >= wanted.at_least || Clock::now() >= wanted.deadline)) {
      return newcomers;
    }
    UNISONO_TRY(await_more(wanted.deadline));
  }
}

Status WaitList::invite(const Newcomer& newcomer, const Invitation& invitation) {
  return set_in_store(store_, invitation_key(list_, newcomer.handle, group_),
                      invitation_text(invitation));
}

Status WaitList::withdraw(const Newcomer& newcomer) {
  return set_in_store(store_, invitation_key(list_, newcomer.handle, group_), kCrossedOut);
}

Status WaitList::read_places(const std::function<Status()>& go_on) {
  if (first_ < 0) {
    UNISONO_ASSIGN(first_, read_first(store_, list_));
  }
  for (end_ = first_; end_ < kPlacesMax; ++end_) {
    UNISONO_ASSIGN(const std::string text,
                   get_from_store(store_, place_key(list_, end_), TimePoint()));
    if (text.empty()) return Status();
    UNISONO_TRY(go_on());
    UNISONO_TRY(read_place(end_, text));
  }
  return list_is_full(list_);
}

Status WaitList::read_place(int place, const std::string& text) {
  if (text == kCrossedOut) {
    seen_.erase(place);
    if (place != first_) return Status();
    ++first_;
    return set_in_store(store_, first_key(list_), std::to_string(first_));
  }
  auto newcomer = parse_entry(text, place);
  if (!newcomer) {
    log::warning(
        fmt::format("place {} of '{}' in the store names no newcomer; crossed out", place, list_));
    return cross_out(place);
  }
  Seen& seen = seen_[place];
  if (seen.newcomer.handle == newcomer->handle) return Status();
  seen = {*std::move(newcomer), Clock::now(), false};
  const std::string& handle = seen.newcomer.handle;
  const int earlier = std::exchange(place_of_.try_emplace(handle, place).first->second, place);
  const auto lost = seen_.find(earlier);
  if (earlier != place && lost != seen_.end() && lost->second.newcomer.handle == handle) {
    // It has lost the place where it was seen, and taken this one. It was asked there.
    seen.asked = lost->second.asked;
    seen.is_here = lost->second.is_here;
    seen_.erase(lost);
    return Status();
  }
  return set_in_store(store_, question_key(list_, handle), group_);
}

Status WaitList::read_answers() {
  std::vector<int> silent;
  for (auto& [place, seen] : seen_) {
    // Who was here may have gone since.
    UNISONO_ASSIGN(const std::string word, answer_of(seen.newcomer, TimePoint()));
    seen.is_here = word == kHere;
    const bool is_late = word != kHere && Clock::now() - seen.asked >= kAnswerTime;
    if (word == kGone || is_late || has_ended_(seen.newcomer.process)) silent.push_back(place);
  }
  for (const int place : silent) {
    log::info(fmt::format(
        "the newcomer at place {} of '{}' is gone or does not answer: crossed out", place, list_));
    UNISONO_TRY(cross_out(place));
  }
  return Status();
}

Result<std::string> WaitList::answer_of(const Newcomer& newcomer, TimePoint until) {
  return get_from_store(store_, answer_key(list_, newcomer.handle, group_), until);
}

Status WaitList::cross_out(int place) {
  seen_.erase(place);
  return set_in_store(store_, place_key(list_, place), kCrossedOut);
}

// Waits where something will be set next.
Status WaitList::await_more(TimePoint deadline) {
  const TimePoint now = Clock::now();
  for (const auto& [place, seen] : seen_) {
    if (seen.is_here) continue;
    return answer_of(seen.newcomer, std::min(seen.asked + kAnswerTime, now + kListLookEvery))
        .status();
  }
  const TimePoint until = std::min(deadline, now + kListLookEvery);
  return get_from_store(store_, place_key(list_, end_), until).status();
}

std::vector<WaitList::Newcomer> WaitList::present(int at_most) const {
  std::vector<Newcomer> newcomers;
  for (const auto& [place, seen] : seen_) {
    if (static_cast<int>(newcomers.size()) == at_most) break;
    if (seen.is_here) newcomers.push_back(seen.newcomer);
  }
  return newcomers;
}

bool WaitList::awaits_answers() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const auto& each) { return !each.second.is_here; });
}

// ---- The newcomer -------------------------------------------------------------------------------

Newcomer::Newcomer(Store& store, std::string_view name, int key, std::string_view process)
    : store_(store),
      list_(list_of(name)),
      name_(name),
      key_(key),
      process_(is_word(process) ? process : kUntold),
      handle_(random_group()),
      entry_(entry()) {}

std::string Newcomer::entry() const {
  return fmt::format("{} {} {} {}", kFormat, handle_, key_, process_);
}

Status Newcomer::renew() {
  UNISONO_TRY(leave());
  handle_ = random_group();
  entry_ = entry();
  place_ = -1;
  group_.clear();
  return Status();
}

Result<Invitation> Newcomer::await_invitation(TimePoint deadline) {
  const TimePoint started = Clock::now();
  for (;;) {
    const TimePoint now = Clock::now();
    UNISONO_ASSIGN(const bool placed, claim_place());
    UNISONO_ASSIGN(auto invitation,
                   look(placed ? std::min(deadline, now + kListLookEvery) : TimePoint()));
    if (invitation) return *std::move(invitation);
    if (now >= deadline) {
      UNISONO_TRY(leave());
      return Status(ErrorCode::kTimeout,
                    fmt::format("nobody let this newcomer in within {}: no group has called grow() "
                                "under the name '{}', or it had enough newcomers",
                                duration_text(now - started), name_));
    }
    if (!placed) UNISONO_TRY(take_place(deadline));
  }
}

Status Newcomer::take_place(TimePoint deadline) {
  UNISONO_ASSIGN(int place, read_first(store_, list_));
  for (place = std::max(place, place_ + 1); place < kPlacesMax; ++place) {
    UNISONO_ASSIGN(const std::string text,
                   get_from_store(store_, place_key(list_, place), TimePoint()));
    if (Clock::now() >= deadline) return Status();
    if (!text.empty()) continue;
    place_ = place;
    return set_in_store(store_, place_key(list_, place), entry_);
  }
  return list_is_full(list_);
}

Result<bool> Newcomer::claim_place() {
  if (place_ < 0) return false;
  UNISONO_ASSIGN(const std::string text,
                 get_from_store(store_, place_key(list_, place_), TimePoint()));
  if (text != entry_) return false;
  UNISONO_ASSIGN(const int first, read_first(store_, list_));
  if (place_ >= first) return true;
  // Others had it meanwhile, and nobody reads it any more.
  UNISONO_TRY(set_in_store(store_, place_key(list_, place_), kCrossedOut));
  return false;
}

// Answers the group that asks for it now, and waits for its invitation, or for the first question.
Result<std::optional<Invitation>> Newcomer::look(TimePoint until) {
  UNISONO_ASSIGN(const bool is_another, is_asked_again());
  if (is_another) {
    UNISONO_ASSIGN(group_, get_from_store(store_, question_key(list_, handle_), TimePoint()));
    UNISONO_TRY(answer(kHere));
  }
  const std::string awaited =
      group_.empty() ? question_key(list_, handle_) : invitation_key(list_, handle_, group_);
  UNISONO_ASSIGN(const std::string word, get_from_store(store_, awaited, until));
  if (group_.empty() || word.empty()) return std::optional<Invitation>();
  if (word == kCrossedOut) {
    UNISONO_TRY(renew());
    return std::optional<Invitation>();
  }
  auto invitation = parse_invitation(word);
  if (!invitation) return store_failed("it holds an invitation that is none");
  return invitation;
}

Result<bool> Newcomer::is_asked_again() {
  UNISONO_ASSIGN(const std::string asking,
                 get_from_store(store_, question_key(list_, handle_), TimePoint()));
  return is_handle(asking) && asking != group_;
}

Result<bool> Newcomer::is_invited() {
  UNISONO_ASSIGN(const std::string word,
                 get_from_store(store_, invitation_key(list_, handle_, group_), TimePoint()));
  return word != kCrossedOut;
}

Status Newcomer::answer(std::string_view word) {
  return set_in_store(store_, answer_key(list_, handle_, group_), word);
}

Status Newcomer::leave() {
  if (!group_.empty()) UNISONO_TRY(answer(kGone));
  return leave_place();
}

Status Newcomer::leave_place() {
  UNISONO_ASSIGN(const bool placed, claim_place());
  return placed ? set_in_store(store_, place_key(list_, place_), kCrossedOut) : Status();
}

}  // namespace unisono::rendezvous
