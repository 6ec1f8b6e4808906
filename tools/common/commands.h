// The commands of `unisono`, each a main of its own in tools/<name>. argv[0] is the command's name.
// They return the exit status of the process: 2 for a wrong command line.
#pragma once

namespace unisono {

int blame_main(int argc, char** argv);  ///< who stopped first, in what, and who waits for whom
int info_main(int argc, char** argv);   ///< what this build and machine offer
int perf_main(int argc, char** argv);   ///< how fast a collective is; 1: a result was wrong
int plan_main(int argc, char** argv);   ///< a collective's plan; 1: it fails its check
int run_main(int argc, char** argv);    ///< the launcher
int train_main(int argc, char** argv);  ///< a model, a strategy of data parallelism, what they cost
int tune_main(int argc, char** argv);   ///< writes the selection table that UNISONO_TUNING names

}  // namespace unisono
