// The `unisono` command: one table of subcommands, each a main of its own in tools/<name>.
// To add one, add its source to CMakeLists.txt and a row here.
#include <cstdio>
#include <string_view>

#include "tools/common/commands.h"
#include "tools/common/environment.h"
#include "tools/common/output.h"

namespace {

struct Command {
  std::string_view name;
  const char* help;
  int (*main)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"run", "start one process for each rank, here or on several machines", unisono::run_main},
    {"perf", "measure a collective: time, algorithm and bus bandwidth, correctness",
     unisono::perf_main},
    {"info", "what this build and machine offer, and why a call runs as it does",
     unisono::info_main},
    {"blame", "which rank of a job stopped first or is missing, in what, and who waits for whom",
     unisono::blame_main},
    {"plan", "print, draw, check and cost an algorithm's plan without a network",
     unisono::plan_main},
    {"tune", "measure this machine's best algorithms and write a selection table",
     unisono::tune_main},
#ifdef UNISONO_HAS_TRAIN
    {"train", "train a model on several ranks: real data, every strategy, what each costs",
     unisono::train_main},
#endif
};

constexpr const char* kExamples = R"(
Examples:
  unisono run -n 4 ./train          start four ranks on this machine
  unisono perf all_reduce -n 2      bandwidth of two local ranks
  unisono info --why all_reduce 1M  what would run, and why
  unisono blame 4711                who is missing in the job of this process
  unisono plan all_reduce --ranks 4 --algorithm ring
  unisono run --help                all about one command; or: unisono help run
)";

void print_help(std::FILE* file) {
  std::fputs(
      "unisono: collective communication that never hangs and names the rank that failed\n\n"
      "Usage: unisono <command> [arguments]\n\nCommands:\n",
      file);
  for (const Command& command : kCommands) {
    std::fprintf(file, "  %-8s  %s\n", command.name.data(), command.help);
  }
  std::fputs(kExamples, file);
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

int refuse(const char* name) {
  std::fprintf(stderr, "unisono: no command '%.64s'; see: unisono --help\n", name);
  return 2;
}

// "help run" is "run --help".
int help_of(char* name) {
  const Command* const command = find_command(name);
  if (command == nullptr) return refuse(name);
  char flag[] = "--help";
  char* arguments[]{name, flag, nullptr};
  return command->main(2, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "help" && argc > 2) return help_of(argv[2]);
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(stdout);
    return unisono::tools::finish_output("unisono", 0);
  }
  if (name == "--version") {
    std::printf("unisono %s\n", UNISONO_VERSION_STRING);
    return unisono::tools::finish_output("unisono", 0);
  }
  if (const Command* const command = find_command(name)) {
    unisono::tools::ask_for_all_hardware_queues();
    return command->main(argc - 1, argv + 1);
  }
  if (!name.empty()) return refuse(argv[1]);
  print_help(stderr);
  return 2;
}
