/* A token goes around: messages that are started, and waited for together.
 *
 *   cc -std=c99 ring.c $(pkg-config --cflags --libs unisono) -o ring
 *   unisono run -n 3 ./ring
 */
#include <stdint.h>
#include <stdio.h>
#include <unisono/unisono.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, unisono_last_error());
  return 1;
}

static unisono_call message(unisono_collective collective, int64_t* token, int32_t peer) {
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = collective;
  call.in = token;
  call.out = token;
  call.count = 1;
  call.type = UNISONO_INT64;
  call.peer = peer;
  return call;
}

int main(void) {
  unisono_comm* comm;
  if (unisono_init(NULL, &comm) != UNISONO_OK) return fail("init");
  const int32_t rank = unisono_comm_rank(comm), size = unisono_comm_size(comm);

  int64_t own = 100 + rank, others = 0;
  const unisono_call send = message(UNISONO_SEND, &own, (rank + 1) % size);
  const unisono_call receive = message(UNISONO_RECEIVE, &others, (rank + size - 1) % size);
  for (int32_t hop = 0; hop < size; ++hop) {
    unisono_request* requests[2] = {NULL, NULL};
    int ok = unisono_start(comm, &receive, &requests[0]) == UNISONO_OK &&
             unisono_start(comm, &send, &requests[1]) == UNISONO_OK;
    ok = ok && unisono_wait_all(requests, 2) == UNISONO_OK;
    if (!ok) fail("ring");
    unisono_request_free(requests[0]);
    unisono_request_free(requests[1]);
    if (!ok) return 1;
    own = others;
  }
  printf("rank %d has its token %s\n", (int)rank, own == 100 + rank ? "again" : "lost");
  unisono_comm_destroy(comm);
  return own == 100 + rank ? 0 : 1;
}
