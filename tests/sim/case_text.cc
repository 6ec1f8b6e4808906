// What a case is, for people.
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "tests/sim/case_parts.h"

namespace unisono::sim {
namespace {

using std::chrono::milliseconds;

std::string text_of(const Fault& fault);

std::string text_in_growth(Fault fault) {
  const bool is_of_newcomer = fault.is_of_newcomer;
  fault.is_in_growth = fault.is_of_newcomer = false;
  return fmt::format("from step {} of its growth: {}{}", fault.step,
                     is_of_newcomer ? "newcomer " : "", text_of(fault));
}

std::string text_of(const Fault& fault) {
  if (fault.is_in_growth) return text_in_growth(fault);
  const double at_ms = std::chrono::duration<double, std::milli>(fault.at).count();
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      return fmt::format("rank {} dies at {:.3f} ms", fault.rank, at_ms);
    case Fault::Kind::kCut:
      return fmt::format("the link of ranks {} and {} breaks at {:.3f} ms", fault.rank, fault.peer,
                         at_ms);
    case Fault::Kind::kIsolate:
      return fmt::format("the links of rank {} break at {:.3f} ms", fault.rank, at_ms);
    case Fault::Kind::kPause:
      return fmt::format("nobody is run at {:.3f} ms for {:.3f} ms", at_ms,
                         std::chrono::duration<double, std::milli>(fault.lasts).count());
    case Fault::Kind::kSlow:
      return fmt::format("rank {} is slow from {:.3f} ms", fault.rank, at_ms);
    case Fault::Kind::kDiffers:
      return fmt::format("rank {} makes another call as number {}", fault.rank, fault.call);
    case Fault::Kind::kPartition:
      return fmt::format(
          "hosts of ranks {} to {} {} at {:.3f} ms{}", fault.rank, fault.peer,
          fault.is_one_way ? "do not hear the others" : "are cut off", at_ms,
          fault.is_for_ever()
              ? std::string()
              : fmt::format(" for {:.3f} ms",
                            std::chrono::duration<double, std::milli>(fault.lasts).count()));
    case Fault::Kind::kReset:
      return fmt::format("the control connection of rank {} is reset at {:.3f} ms", fault.rank,
                         at_ms);
    case Fault::Kind::kStop:
      break;
  }
  if (fault.is_for_ever()) return fmt::format("rank {} stops at {:.3f} ms", fault.rank, at_ms);
  return fmt::format("rank {} stops at {:.3f} ms for {:.3f} ms", fault.rank, at_ms,
                     std::chrono::duration<double, std::milli>(fault.lasts).count());
}

}  // namespace

std::string describe(const Operation& operation) {
  if (operation.is_split()) return fmt::format("a split into up to {} parts", operation.parts);
  if (operation.is_native()) {
    return fmt::format("{}{}{}", test::describe(operation.what),
                       operation.blocks ? ", blocking" : "", operation.in_heap ? ", in heap" : "");
  }
  if (!operation.is_exchange()) {
    return fmt::format("{}, {} chunks", test::describe(operation.what), operation.chunks);
  }
  const Exchange& e = operation.exchange;
  const bool to_one = e.pattern == Exchange::Pattern::kToOne;
  return fmt::format("{} {}messages of {} {} {}{}{}{}{}", e.messages, e.blocks ? "blocking " : "",
                     operation.what.count, name_of(operation.what.type),
                     to_one ? "to rank " : "between each rank r and modulo r ",
                     to_one ? operation.what.root : e.shift, e.own_tags ? ", own tags" : "",
                     e.from_any ? ", from any rank" : "",
                     e.more_room == 0 ? "" : fmt::format(", room {:+}", e.more_room));
}

std::string describe(const Case& c) {
  const auto us = [](Duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  const Network& n = c.network;
  std::string text = fmt::format(
      "{} ranks, {} calls at once, up to {:.1f} us between them, silence {} ms{}{}{}{}\n"
      "  network: {:.1f} to {:.1f} us, one in {} up to {:.1f}; {} streams of {} frames, {} bytes; "
      "eager up to {}, credit {}; one in {} refused, {} lent, {} in parts\n",
      c.ranks, c.at_once, us(c.computes), c.silence.count(), c.shrinks ? ", shrinks" : "",
      c.shrinks ? fmt::format(" with a patience of {} ms", c.patience.count()) : "",
      c.deadline.count() > 0 ? fmt::format(", deadline {} ms", c.deadline.count()) : "",
      c.takes_turns ? ", takes turns" : "", us(n.delay_min), us(n.delay_max), n.late_one_in,
      us(n.late), n.streams, n.frames_max, n.bytes_max, n.eager_bytes, n.credit_bytes,
      n.refuse_one_in, n.lend_one_in, n.partial_one_in);
  if (c.sharing != Sharing::kNone) {
    text += fmt::format(
        "  {} that share memory, access {}{}, domains of {}; interrupted at one in {} accesses, "
        "one in {} stores "
        "seen later\n",
        c.sharing == Sharing::kThreads ? "threads" : "processes", name_of(c.access),
        c.mixes_access ? " and others" : "", c.domain_ranks, c.interrupted_one_in,
        c.buffered_one_in);
  }
  if (c.grows()) text += describe(c.growing);
  for (const Operation& operation : c.operations) text += "  " + describe(operation) + "\n";
  for (const Fault& fault : c.faults) text += "  " + text_of(fault) + "\n";
  return text;
}

}  // namespace unisono::sim
