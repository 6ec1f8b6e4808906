// What this machine can do at most: copies, additions, wake-ups, sockets, reads of another
// process's memory, and bare exchanges. CSV on standard output: test,variant,bytes,value,unit.
//
//   limits [PART ...]     wake-ups, single-copy, sockets, memory, exchanges, slots; nothing: all
#include "bench/peers/limits.h"

#include <string_view>

int main(int argc, char** argv) {
  struct Part {
    std::string_view name;
    void (*measure)();
  };
  constexpr Part kParts[] = {
      {"wake-ups", limits::measure_wake_ups},   {"single-copy", limits::measure_single_copy},
      {"sockets", limits::measure_sockets},     {"memory", limits::measure_memory},
      {"exchanges", limits::measure_exchanges}, {"slots", limits::measure_slots}};
  std::puts("test,variant,bytes,value,unit");
  for (const Part& part : kParts) {
    bool is_wanted = argc == 1;
    for (int i = 1; i < argc; ++i) is_wanted |= part.name == argv[i];
    if (is_wanted) part.measure();
  }
  return 0;
}
