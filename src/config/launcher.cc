// See launcher.h.
#include "config/launcher.h"

#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fnv.h"
#include "base/limits.h"
#include "config/environment.h"

namespace unisono {
namespace {

using config::read_integer;
using config::read_variable;

// The variables of one launcher; null where it has none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Launcher kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kHydra{"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                          "MPI_LOCALNRANKS"};
constexpr Launcher kSlurmStep{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                              nullptr};
constexpr Launcher kSlurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr Launcher kPmix{"PMIx", "PMIX_RANK", "WORLD_SIZE", nullptr, nullptr};

bool is_set(const char* name) { return read_variable(name) != nullptr; }

std::string text_of(const char* name) {
  const char* const text = read_variable(name);
  return text == nullptr ? std::string() : std::string(text);
}

// The shell of an allocation has Slurm's variables as well, and some shells are steps of their own,
// whose numbers are the last ones.
bool is_slurm_task() {
  constexpr std::uint64_t kFirstSpecialStep = 0xfffffff0;
  const std::string step = text_of(is_set("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
  std::uint64_t number = kFirstSpecialStep;
  std::from_chars(step.data(), step.data() + step.size(), number);
  return number < kFirstSpecialStep && is_set("SLURM_PROCID");
}

// The innermost launcher: mpirun starts its helpers by srun, whose variables the ranks see as well,
// and srun may offer what MPICH asks for, but for the local ranks.
const Launcher* find_launcher() {
  if (is_set(kOpenMpi.rank) || is_set(kOpenMpi.size)) return &kOpenMpi;
  if (is_set(kHydra.rank) && is_set(kHydra.local_size)) return &kHydra;
  if (is_slurm_task()) return is_set(kSlurmStep.size) ? &kSlurmStep : &kSlurm;
  if (is_set(kHydra.rank) || is_set(kHydra.size)) return &kHydra;
  return is_set(kPmix.rank) ? &kPmix : nullptr;
}

// "2(x3),1": two tasks on each of the first three nodes, one on the last. -1: not known.
int tasks_of_node(std::string_view text, int node) {
  const auto take = [&text](std::string_view before, int* number) {
    if (!text.starts_with(before)) return false;
    text.remove_prefix(before.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (error != std::errc() || *number < 1 || *number > kWorldSizeMax) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  int tasks = 0;
  for (bool more = take("", &tasks); more && node >= 0; more = take(",", &tasks)) {
    int nodes = 1;
    if (text.starts_with("(")) {
      if (!take("(x", &nodes) || !text.starts_with(")")) return -1;
      text.remove_prefix(1);
    }
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return -1;
}

// Of "rack[2-3]n[07,9],login": "rack2n07".
std::string first_host(std::string_view list) {
  std::string host;
  bool is_range = false, is_taken = false;
  for (const char c : list) {
    if (c == '[') {
      is_range = true;
      is_taken = false;
    } else if (c == ']') {
      is_range = false;
    } else if (is_range) {
      is_taken = is_taken || c == '-' || c == ',';
      if (!is_taken) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

// One of 8000 below those that systems give away, the same for all ranks of a step.
int port_of(const std::string& run_id) { return 21000 + static_cast<int>(fnv1a(run_id) % 8000); }

// Task 0 is on the first node, and all nodes know its name.
Status read_slurm(LauncherVariables* v) {
  int nodes = -1, node = -1;
  const bool is_step = is_set("SLURM_STEP_NUM_NODES");
  UNISONO_TRY(
      read_integer(is_step ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES", 1, kWorldSizeMax, &nodes));
  UNISONO_TRY(read_integer("SLURM_NODEID", 0, kWorldSizeMax - 1, &node));
  const char* const tasks =
      is_set("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  v->local_world_size = nodes == 1 ? v->world_size : tasks_of_node(text_of(tasks), node);
  v->run_id = "slurm " + text_of("SLURM_JOB_ID") + "." +
              text_of(is_set("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
  if (v->master_port < 0) v->master_port = port_of(v->run_id);
  if (!v->master_address.empty()) return Status();
  v->master_address = first_host(
      text_of(is_set("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST"));
  return Status();
}

// Hydra's helper on this host, which started all ranks here: it made the socket by which each of
// them can ask it, and is their parent where it made none. Empty: a program that stands between has
// closed the socket.
std::string hydra_helper() {
  if (!is_set("PMI_FD")) return "helper " + std::to_string(::getppid());
  int socket = -1;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  const bool is_told = read_integer("PMI_FD", 0, INT_MAX, &socket).ok() &&
                       ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  return is_told && peer.pid > 0 ? "helper " + std::to_string(peer.pid) : "";
}

// What no other job of this host has at the same time.
std::string run_id_of(const Launcher& launcher) {
  std::string id;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}) {
    if (&launcher != &kHydra && is_set(name)) id += text_of(name) + " ";
  }
  if (&launcher == &kHydra) id = hydra_helper();
  return id;
}

Status read_other_launcher(LauncherVariables* v) {
  const Launcher* const launcher = find_launcher();
  if (launcher == nullptr) return Status();
  int size = -1;
  UNISONO_TRY(read_integer(launcher->size, 1, kWorldSizeMax, &size));
  // One process alone is no job: a shell under srun may start one of its own.
  v->is_alone = size == 1;
  if (v->is_alone) return Status();
  v->launcher = launcher->name;
  v->rank_name = launcher->rank;
  v->world_size_name = launcher->size;
  v->world_size = size;
  UNISONO_TRY(read_integer(launcher->rank, 0, kWorldSizeMax - 1, &v->rank));
  if (launcher->local_rank != nullptr) {
    UNISONO_TRY(read_integer(launcher->local_rank, 0, kWorldSizeMax - 1, &v->local_rank));
  }
  if (launcher == &kSlurmStep || launcher == &kSlurm) return read_slurm(v);
  if (launcher->local_size != nullptr) {
    UNISONO_TRY(read_integer(launcher->local_size, 1, kWorldSizeMax, &v->local_world_size));
  }
  // Whoever says where to meet needs no name.
  const bool has_place = !v->master_address.empty() && v->master_port >= 0;
  if (!has_place) v->run_id = run_id_of(*launcher);
  return Status();
}

}  // namespace

Result<LauncherVariables> LauncherVariables::from_environment() {
  LauncherVariables v;
  UNISONO_TRY(read_integer("RANK", 0, kWorldSizeMax - 1, &v.rank));
  UNISONO_TRY(read_integer("WORLD_SIZE", 1, kWorldSizeMax, &v.world_size));
  UNISONO_TRY(read_integer("LOCAL_RANK", 0, kWorldSizeMax - 1, &v.local_rank));
  UNISONO_TRY(read_integer("LOCAL_WORLD_SIZE", 1, kWorldSizeMax, &v.local_world_size));
  UNISONO_TRY(read_integer("MASTER_PORT", 1, 65535, &v.master_port));
  UNISONO_TRY(read_integer("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &v.restarts));
  v.master_address = text_of("MASTER_ADDR");
  v.run_id = text_of("TORCHELASTIC_RUN_ID");
  v.agent_store = text_of("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (v.rank < 0 && v.world_size < 0) UNISONO_TRY(read_other_launcher(&v));
  return v;
}

}  // namespace unisono
