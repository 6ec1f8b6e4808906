// An engine's host for tests that nothing is told in: every event is dropped.
#pragma once

#include <string>

#include "engine/engine.h"

namespace unisono::test {

class DeafHost : public EngineHost {
 public:
  void tend() override {}
  void mismatch(std::uint32_t, Rank, const CallRecord&, const CallRecord&) override {}
  void counts_differ(std::uint32_t, Rank, std::string) override {}
  void violation(std::uint32_t, Rank, std::string) override {}
  void link_closed(Rank, const Status&) override {}
  void left(std::uint32_t, Rank) override {}
  const CallRecord* find_call(std::uint32_t, std::uint64_t) const override { return nullptr; }
  void stranger(std::uint32_t, Rank) override {}
  void no_memory(std::uint32_t) override {}
};

}  // namespace unisono::test
