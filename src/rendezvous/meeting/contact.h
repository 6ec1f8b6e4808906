// Where the arbiter of one job can be reached, as text in a file or a user's store: addresses,
// random job id, and the key if rank 0 made it up. A key that the user gave outlives the job and is
// never written. Rank 0 writes the text; the others read it again and again until it leads to a
// living arbiter, so that what a finished or killed job left behind does no harm.
//
// Thread rule: the thread that joins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/handshake.h"
#include "base/result.h"

namespace unisono::rendezvous {

struct Contact {
  std::string job_id;
  bool has_key = false;  ///< the text holds the key; else ranks must have been given it
  JobKey key;
  std::string unix_name;                                   ///< abstract socket; empty: none
  std::vector<std::pair<std::string, std::uint16_t>> tcp;  ///< numeric or named host, port
};

/// 32 hex digits from the library's generator.
std::string random_id();

SecretText to_text(const Contact& contact);
/// kRendezvous saying what is wrong with `text`; every line is checked.
Result<Contact> contact_from_text(std::string_view text);

/// Replaces the file in one step, readable by its owner alone.
Status write_contact_file(const std::string& path, const Contact& contact);
/// Refuses files that another user owns or can read: they could name any job.
Result<Contact> read_contact_file(const std::string& path);
/// Removes the file if it is still the one of this job.
void remove_contact_file(const std::string& path, const std::string& job_id);

}  // namespace unisono::rendezvous
