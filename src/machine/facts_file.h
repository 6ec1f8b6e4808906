// The files in which facts outlive a job, one for each identity, in a folder of the user's. They
// only make the next job quicker: whatever is wrong with them, nothing is known then, and nobody
// fails. One rank of a host reads and writes them, when it joins and when it leaves.
//
// Thread rule: any thread, any number of processes: a file is replaced as a whole, and of two that
// are written at once one stays.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/trial_facts.h"
#include "machine/facts_text.h"
#include "machine/folder.h"
#include "machine/identity.h"

namespace unisono::machine {

/// "<folder>/machine-<16 hexadecimal digits>".
/// Of this user: several may keep theirs in one folder.
std::string path_of(const std::string& folder, const Identity& identity);

/// The facts in a file of this user's, no link: nothing where there is none, an error where it
/// cannot be used (kSystem, kProtocol, check_folder()).
Result<TrialFacts> read_facts(const Folder& folder, const Identity& identity);

/// Writes what `learned` knows over what the file knows; makes the folder and tidies it
/// (make_folder(), tidy_folder()). kSystem, kOutOfResources, check_folder().
Status add_facts(const Folder& folder, const Identity& identity, const TrialFacts& learned);

struct FoundFacts {
  std::string path;
  double age_seconds = 0;
  Facts facts;
};
/// The files of the folder that can be used, by path; of more than a hundred some.
std::vector<FoundFacts> find_facts(const Folder& folder);

}  // namespace unisono::machine
