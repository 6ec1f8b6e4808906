/* The sum over all ranks of a vector, and how a failure is told.
 *
 *   cc -std=c99 all_reduce.c $(pkg-config --cflags --libs unisono) -o all_reduce
 *   unisono run -n 4 ./all_reduce
 */
#include <stdio.h>
#include <unisono/unisono.h>

enum { kCount = 1000 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, unisono_last_error());
  if (unisono_last_error_rank() != UNISONO_NO_RANK) {
    fprintf(stderr, "the rank at fault is %d\n", (int)unisono_last_error_rank());
  }
  return 1;
}

int main(void) {
  unisono_comm* comm;
  if (unisono_init(NULL, &comm) != UNISONO_OK) return fail("init");
  const int rank = unisono_comm_rank(comm), size = unisono_comm_size(comm);

  float values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + i);
  if (unisono_all_reduce(comm, values, values, kCount, UNISONO_FLOAT32, UNISONO_OP_SUM, NULL) !=
      UNISONO_OK) {
    return fail("all_reduce");
  }

  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    wrong += values[i] != (float)(size * i + size * (size - 1) / 2);
  }
  if (rank == 0) printf("%d ranks, %d wrong values\n", size, wrong);
  unisono_comm_destroy(comm);
  return wrong == 0 ? 0 : 1;
}
