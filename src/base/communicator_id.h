// The numbers that tell the communicators of a job apart: who gives one names itself in it and
// counts for itself, so that two numbers given at the same time cannot be the same.
//
// Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "unisono/types.h"

namespace unisono {

/// The world's, known before anybody has said it. Its ranks are those of the job; every other
/// communicator numbers its own.
inline constexpr std::uint32_t kWorldId = 0;

/// No communicator's: what concerns all that a rank has.
inline constexpr std::uint32_t kEveryCommunicator = 0xffffffff;

/// `text`, in which ranks are those of the job, for the members of this communicator.
inline std::string with_ranks_of_job(std::string text, std::uint32_t communicator) {
  if (communicator != kWorldId) text += " (ranks as the job numbers them)";
  return text;
}

/// Whose ranks a text names that is read outside of its calls: " of communicator 5", or nothing.
inline std::string of_communicator(std::uint32_t id) {
  return id == kWorldId ? "" : " of communicator " + std::to_string(id);
}

/// How many each can give.
constexpr std::uint32_t communicator_numbers(int world_size) {
  // One less: the last id means every communicator.
  return (1u << (32 - std::bit_width(static_cast<unsigned>(world_size)))) - 2;
}

/// The `number`th that `giver` gives, from 1 on: a world rank, or the size of the world for the
/// arbiter. 0 when it has none left.
constexpr std::uint32_t communicator_id(std::uint32_t number, int giver, int world_size) {
  const int giver_bits = std::bit_width(static_cast<unsigned>(world_size));
  return number > communicator_numbers(world_size)
             ? 0
             : number << giver_bits | static_cast<std::uint32_t>(giver);
}

constexpr int giver_of(std::uint32_t id, int world_size) {
  const int giver_bits = std::bit_width(static_cast<unsigned>(world_size));
  return static_cast<int>(id & ((1u << giver_bits) - 1));
}

}  // namespace unisono
