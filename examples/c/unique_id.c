/* Processes that no launcher has started: one makes a unique id and hands it to the others.
 *
 *   cc -std=c99 unique_id.c $(pkg-config --cflags --libs unisono) -o unique_id && ./unique_id
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unisono/unisono.h>
#include <unistd.h>

enum { kRanks = 3 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, unisono_last_error());
  return 1;
}

static int run_rank(const unisono_unique_id* id, int rank) {
  unisono_comm* comm;
  if (unisono_join_by_id(id, rank, kRanks, NULL, &comm) != UNISONO_OK) return fail("join");
  int32_t sum = rank;
  if (unisono_all_reduce(comm, &sum, &sum, 1, UNISONO_INT32, UNISONO_OP_SUM, NULL) != UNISONO_OK) {
    return fail("all_reduce");
  }
  char text[200];
  unisono_comm_describe(comm, text, sizeof text);
  printf("%s: the sum of the ranks is %d\n", text, (int)sum);
  unisono_comm_destroy(comm);
  return sum == kRanks * (kRanks - 1) / 2 ? 0 : 1;
}

int main(void) {
  unisono_unique_id id;
  if (unisono_unique_id_make(&id) != UNISONO_OK) return fail("unique_id_make");
  for (int rank = 1; rank < kRanks; ++rank) {
    if (fork() == 0) exit(run_rank(&id, rank));
  }
  int outcome = run_rank(&id, 0);
  for (int rank = 1; rank < kRanks; ++rank) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) outcome = 1;
  }
  return outcome;
}
