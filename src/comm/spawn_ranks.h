// What spawn() makes of its ranks, threads or processes, and how it finds out which of them failed
// first: an exception is noted before the others hear of it, because theirs only follow from it.
//
// Thread rule: run_rank() on the rank's own thread; run_processes() on the caller's.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "unisono/communicator.h"

namespace unisono {

class Runtime;

inline constexpr int kSpawnRanksMax = 1024;

struct SpawnJob {
  const Config& config;
  const std::string& name;  ///< where the ranks meet
  int size;
  const std::vector<int>& devices;
  const std::function<void(Communicator&)>& body;
  SpawnOptions::As as;
};

/// Takes an exception that ends the calling rank, for the first time before any other rank can
/// have heard of it. It may be called for one exception more than once.
using NoteFailure = std::function<void(const std::exception_ptr& failure)>;

/// Joins, tells what, runs the body, leaves. Throws what the body threw, after noting it.
void run_rank(const SpawnJob& job, int rank, const NoteFailure& note,
              std::weak_ptr<Runtime>* joined = nullptr);

/// "rank 1 threw: on purpose"
std::string describe_failure(int rank, const std::exception_ptr& failure);

/// Forks all ranks and waits for them. Throws Error naming the one that failed first.
void run_processes(const SpawnJob& job);

}  // namespace unisono
