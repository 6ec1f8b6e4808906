// The text of a file of facts: what trials have shown on one machine (base/trial_facts.h).
//
//   unisono machine 3, trials N                             kTrialsVersion
//   processor AMD EPYC ..., family 25 model 1 stepping 1     nine lines of the identity
//   ...
//   wait 64 exchange=310 kernel=742                          ns (base/host_facts.h)
//   copy 16384 write=21022 read=61120 streamed_write=...      measured when ranks met
//   call all_gather 1048576 mapped=61022 streamed=58110 single_copy=40213 window=0
//   message 131072 ring=80120 lent=52071
//   piece 1024 cached=210211 streamed=190022
//   sum 0123456789abcdef                                     FNV-1a of all before it
//
// The size is what a class begins with: a call has more bytes, a message or piece as many or more.
// The times are ns for a MiB, 0 where a way was not tried. Only what is known has a line.
//
// Thread rule: pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/trial_facts.h"
#include "machine/identity.h"

namespace unisono::machine {

/// Longer texts are refused; what is written is never longer.
inline constexpr std::size_t kTextBytesMax = std::size_t{64} << 10;

struct Facts {
  Identity identity;
  TrialFacts trials{};
};

std::string text_of(const Facts& facts);

/// Refuses whatever is not exactly what text_of() makes (kProtocol, with the reason): a part of it,
/// changed bytes, another version, lines that are unknown or come twice.
Result<Facts> parse_facts(std::string_view text);

}  // namespace unisono::machine
