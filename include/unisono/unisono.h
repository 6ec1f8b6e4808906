/* The C API: everything of the C++ API for C, ctypes, Rust, Julia and other languages, but for what
 * is for C++ types alone (containers, serializers) and the trainer. C99.
 *
 *   unisono_comm* comm;
 *   if (unisono_init(NULL, &comm) != UNISONO_OK) return fail(unisono_last_error());
 *   unisono_all_reduce(comm, in, out, 1000, UNISONO_FLOAT32, UNISONO_OP_SUM, NULL);
 *   unisono_comm_destroy(comm);
 *
 * C++ programs include unisono/unisono.hpp instead, whose comments are the reference for what each
 * call does: ordering, threads, device memory, lending of buffers, the shapes of collectives.
 *
 * ABI. Symbols carry the version UNISONO_1. Functions, constants and members keep their meaning
 * for ever; later versions of the library only add to them. A struct that may grow begins with its
 * size, which the caller sets by the struct's UNISONO_..._INIT: the library reads and writes no
 * further, and members that the caller does not know have their default. Zero is the default of
 * every other member, unless its comment says so. Null stands for the defaults where a pointer to
 * options is taken.
 *
 * Errors. Every function that can fail returns its outcome, and writes its results only where that
 * is UNISONO_OK, but where its comment says otherwise. unisono_last_error() and its companions tell
 * more about the last failure on the calling thread; a call that succeeds leaves them as they are.
 * Null or an invalid value where none is allowed is UNISONO_INVALID_ARGUMENT. No C++ exception
 * leaves the library.
 *
 * Handles. Each `_destroy` or `_free` takes null, which it ignores. What a failure returns needs no
 * freeing. A function that has no outcome takes no null but where its comment says so.
 *
 * Callbacks must not let an exception, longjmp or panic through.
 */
#pragma once

#include "unisono/c_values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "0.1.0". */
UNISONO_C_API const char* unisono_version(void);

/* ---- The last failure of this thread ------------------------------------------------------- */

/* One sentence: what, which value, which limit, what to do. Empty before the first failure. The
 * text is valid until this thread's next failure. */
UNISONO_C_API const char* unisono_last_error(void);
UNISONO_C_API unisono_code unisono_last_error_code(void);
/* The rank that caused it, in the communicator's numbering, or UNISONO_NO_RANK. */
UNISONO_C_API int32_t unisono_last_error_rank(void);
/* Where that rank runs, and the transport to it ("tcp"); empty where not known. */
UNISONO_C_API const char* unisono_last_error_host(void);
UNISONO_C_API const char* unisono_last_error_link(void);
/* The call that failed, "all_reduce". */
UNISONO_C_API const char* unisono_last_error_operation(void);
/* The communicator's collective, counted from 0, in which this rank was when the communicator
 * failed (*had_begun, where that is not null, becomes 1), or the next one where it was between two
 * (0). -1: unknown, or the failure of the call alone. */
UNISONO_C_API int64_t unisono_last_error_number(int32_t* had_begun);

/* ---- Communicators -------------------------------------------------------------------------- */

typedef struct unisono_comm unisono_comm;
typedef struct unisono_request unisono_request;

/* InitOptions of unisono/options.h. Strings may be null and are copied. */
typedef struct unisono_init_options {
  size_t size;
  const char* rendezvous;
  const char* job_key;
  const char* transport;
  int64_t timeout_ms;  /* 0: UNISONO_TIMEOUT */
  int32_t rank;        /* default -1: RANK */
  int32_t world_size;  /* default -1: WORLD_SIZE */
  int32_t device;      /* default -1, see InitOptions::device */
  int32_t reserved;    /* 0. A new member never lies where an older struct has padding */
  unisono_order order; /* default UNISONO_ORDER_ANY: UNISONO_ORDER. Of every reduction of the job */
  int32_t reserved_at_end; /* 0 */
} unisono_init_options;
#define UNISONO_INIT_OPTIONS_INIT \
  { sizeof(unisono_init_options), NULL, NULL, NULL, 0, -1, -1, -1, 0, UNISONO_ORDER_ANY, 0 }

/* Where a store's `get` puts the value that it has found. */
typedef struct unisono_store_value unisono_store_value;
/* Copies `bytes` bytes; called at most once in a `get`. */
UNISONO_C_API void unisono_store_return(unisono_store_value* value, const void* data, size_t bytes);

/* A key-value store that all ranks share, as Store of unisono/rendezvous.h. Used only while
 * unisono_join(), unisono_comm_grow() or unisono_rejoin() runs and on its thread. Both functions
 * return 0, or another number where the store failed: then joining fails with UNISONO_RENDEZVOUS.
 * Keys end with a 0, values hold any bytes. */
typedef struct unisono_store {
  size_t size;
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits up to `timeout_ms` for the key. Returns 0 without unisono_store_return() where it was
   * not set in that time. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, unisono_store_value* value);
} unisono_store;
#define UNISONO_STORE_INIT \
  { sizeof(unisono_store), NULL, NULL, NULL }

/* init(), join(), split(), duplicate() and subset() of unisono/communicator.h. Where this rank is
 * no member of the new communicator, *comm is null and the outcome UNISONO_OK. */
UNISONO_C_API unisono_code unisono_init(const unisono_init_options* options, unisono_comm** comm);
UNISONO_C_API unisono_code unisono_join(const unisono_store* store, const char* name, int32_t rank,
                                        int32_t size, const unisono_init_options* options,
                                        unisono_comm** comm);
UNISONO_C_API unisono_code unisono_comm_split(unisono_comm* comm, int32_t color, int32_t key,
                                              unisono_comm** part);
UNISONO_C_API unisono_code unisono_comm_duplicate(unisono_comm* comm, unisono_comm** copy);
UNISONO_C_API unisono_code unisono_comm_subset(unisono_comm* comm, const int32_t* ranks,
                                               size_t count, unisono_comm** part);

/* Going on after a failure, as Communicator::shrink(): the ranks of `comm` that are left make a
 * communicator of themselves. Those that do not call it within `timeout_ms` of the first are left
 * out; 0: the job's timeout. UNISONO_PARTITIONED where so many members are not heard, and may
 * live, that these may go on. `comm` is to be destroyed all the same. */
UNISONO_C_API unisono_code unisono_comm_shrink(unisono_comm* comm, int64_t timeout_ms,
                                               unisono_comm** left);
/* Of one that unisono_comm_shrink() has made: where its ranks stood in the collectives of the one
 * before, the same on all of them: the number of the oldest that was not over on each, and in
 * *had_begun, which may be null, whether one had begun it. -1 of others. */
UNISONO_C_API int64_t unisono_comm_parent_failed_in(const unisono_comm* comm, int32_t* had_begun);

/* GrowOptions of unisono/options.h. */
typedef struct unisono_grow_options {
  size_t size;
  int32_t at_least;   /* newcomers, default 1 */
  int32_t at_most;    /* newcomers, default 65536 */
  int64_t wait_ms;    /* for at_least of them; 0: those that wait already */
  int64_t timeout_ms; /* until all have met; 0: 30 s, or the job's timeout where that is less */
  int32_t key;        /* the place of this rank, default 0 */
  int32_t reserved;   /* 0 */
} unisono_grow_options;
#define UNISONO_GROW_OPTIONS_INIT \
  { sizeof(unisono_grow_options), 1, 65536, 0, 0, 0, 0 }

/* Growing again, as Communicator::grow(): newcomers that wait in unisono_rejoin() and the ranks of
 * `comm` make a communicator. *grown is null and the outcome UNISONO_OK where too few came. A null
 * store and name: those of `unisono run --max-restarts`, where unisono_init() of a rank that was
 * started again waits. `comm` stays as it is. */
UNISONO_C_API unisono_code unisono_comm_grow(unisono_comm* comm, const unisono_store* store,
                                             const char* name, const unisono_grow_options* options,
                                             unisono_comm** grown);
/* The newcomer's side, as rejoin(). */
UNISONO_C_API unisono_code unisono_rejoin(const unisono_store* store, const char* name, int32_t key,
                                          const unisono_init_options* options, unisono_comm** comm);

/* How ranks find each other without a store: one process makes the id and gives it to the others
 * in any way, such as MPI or a file. Whoever has it can join the job. */
typedef struct unisono_unique_id {
  char bytes[128];
} unisono_unique_id;
/* Makes an id and listens for the ranks until rank 0, which is of this process, has joined by it.
 * UNISONO_INTERFACE chooses the address. Any thread. */
UNISONO_C_API unisono_code unisono_unique_id_make(unisono_unique_id* id);
/* Joins the job of `id`, once for each rank. Any number of ids at a time in a process. Collective,
 * bounded by the options' time-out. */
UNISONO_C_API unisono_code unisono_join_by_id(const unisono_unique_id* id, int32_t rank,
                                              int32_t size, const unisono_init_options* options,
                                              unisono_comm** comm);

/* -1 and 0 where `comm` is null. */
UNISONO_C_API int32_t unisono_comm_rank(const unisono_comm* comm);
UNISONO_C_API int32_t unisono_comm_size(const unisono_comm* comm);
/* UNISONO_OK while it works, else why it no longer does; the failure is then the last error. */
UNISONO_C_API unisono_code unisono_comm_status(const unisono_comm* comm);
/* Texts for people. Each returns its length without the final 0, and writes at most `room` bytes
 * with that 0, so that a caller may ask for the length first with `room` 0. */
UNISONO_C_API size_t unisono_comm_describe(const unisono_comm* comm, char* text, size_t room);
UNISONO_C_API size_t unisono_comm_host_of(const unisono_comm* comm, int32_t rank, char* text,
                                          size_t room);
UNISONO_C_API size_t unisono_comm_explain(const unisono_comm* comm, unisono_collective collective,
                                          size_t bytes, char* text, size_t room);

/* Ends every pending and later call on every rank with UNISONO_ABORTED. Any thread. `reason` may
 * be null. */
UNISONO_C_API unisono_code unisono_comm_abort(unisono_comm* comm, const char* reason);
/* The same where another rank is the cause: every rank hears `failed_rank`, numbered as in `comm`,
 * or -1 for none. */
UNISONO_C_API unisono_code unisono_comm_abort_for(unisono_comm* comm, const char* reason,
                                                  int32_t failed_rank);
/* close(): ends the use of the communicator and keeps the handle. */
UNISONO_C_API void unisono_comm_close(unisono_comm* comm);
/* Closes and frees. Its requests and memory stay valid and are freed by themselves. */
UNISONO_C_API void unisono_comm_destroy(unisono_comm* comm);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* UserReduce of unisono/types.h: inout[i] = in[i] (op) inout[i]. */
typedef void (*unisono_user_reduce)(const void* in, void* inout, size_t count, unisono_type type,
                                    void* context);
/* A user's operator. It outlives the call, and so does its name. */
typedef struct unisono_user_op {
  size_t size;
  unisono_user_reduce function;
  void* context;
  const char* name;       /* the same on all ranks */
  int32_t is_commutative; /* default 1; 0 keeps rank order in every algorithm */
  int32_t reserved;       /* 0 */
} unisono_user_op;
#define UNISONO_USER_OP_INIT \
  { sizeof(unisono_user_op), NULL, NULL, NULL, 1, 0 }

/* CallOptions of unisono/options.h, and what some operators need. */
typedef struct unisono_call_options {
  size_t size;
  int64_t timeout_ms;             /* 0: the communicator's */
  const char* algorithm;          /* outlives the call; "auto": selection; null: the job's */
  unisono_order order;            /* default UNISONO_ORDER_ANY */
  int32_t has_stream;             /* 0: no stream */
  void* stream;                   /* a CUDA stream, where has_stream is not 0 */
  double factor;                  /* of UNISONO_OP_PREMULTIPLIED_SUM; default 1 */
  const unisono_user_op* user_op; /* of UNISONO_OP_USER */
} unisono_call_options;
#define UNISONO_CALL_OPTIONS_INIT \
  { sizeof(unisono_call_options), 0, NULL, UNISONO_ORDER_ANY, 0, NULL, 1.0, NULL }

/* One call with everything it needs: Call of unisono/call.h. The arrays of counts have as many
 * entries as there are ranks, or are null. */
typedef struct unisono_call {
  size_t size;
  unisono_collective collective; /* default UNISONO_BARRIER */
  const void* in;
  void* out;
  size_t count;
  unisono_type type; /* default UNISONO_UINT8 */
  unisono_op op;     /* default UNISONO_OP_SUM */
  int32_t root;      /* of rooted collectives */
  int32_t peer;      /* of send and receive */
  uint32_t tag;      /* of send and receive */
  const size_t* in_counts;
  const size_t* in_displacements;
  const size_t* out_counts;
  const size_t* out_displacements;
  const unisono_call_options* options;
} unisono_call;
#define UNISONO_CALL_INIT                                                                   \
  {                                                                                         \
    sizeof(unisono_call), UNISONO_BARRIER, NULL, NULL, 0, UNISONO_UINT8, UNISONO_OP_SUM, 0, \
        UNISONO_NO_PEER, 0, NULL, NULL, NULL, NULL, NULL                                    \
  }

/* What a finished receive got. */
typedef struct unisono_received {
  size_t size;
  size_t count; /* elements; of unisono_request_received() bytes */
  int32_t source;
  uint32_t tag;
} unisono_received;
#define UNISONO_RECEIVED_INIT \
  { sizeof(unisono_received), 0, -1, 0 }

/* Any call, waited for. */
UNISONO_C_API unisono_code unisono_run(unisono_comm* comm, const unisono_call* call);
/* Any call, started. *request is to be freed or detached; the buffers are the library's until the
 * request is finished. */
UNISONO_C_API unisono_code unisono_start(unisono_comm* comm, const unisono_call* call,
                                         unisono_request** request);
/* Starts all calls, then waits for all: sends and receives in any order, without deadlock. */
UNISONO_C_API unisono_code unisono_group(unisono_comm* comm, const unisono_call* calls,
                                         size_t count);
/* The same for a thread that drives several ranks: calls[i] is made on comms[i]. */
UNISONO_C_API unisono_code unisono_group_on(unisono_comm* const* comms, const unisono_call* calls,
                                            size_t count);

/* The collectives by name. `count` and in-place rules: unisono/collectives.h. */
UNISONO_C_API unisono_code unisono_barrier(unisono_comm* comm, const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_all_reduce(unisono_comm* comm, const void* in, void* out,
                                              size_t count, unisono_type type, unisono_op op,
                                              const unisono_call_options* options);
/* Any number of vectors of each rank, see unisono/addends.h: addends[0 .. addend_count), each of
 * `count` elements. */
UNISONO_C_API unisono_code unisono_all_reduce_addends(unisono_comm* comm,
                                                      const void* const* addends,
                                                      size_t addend_count, void* out, size_t count,
                                                      unisono_type type, unisono_op op,
                                                      const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_reduce(unisono_comm* comm, const void* in, void* out,
                                          size_t count, unisono_type type, unisono_op op,
                                          int32_t root, const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_broadcast(unisono_comm* comm, void* data, size_t count,
                                             unisono_type type, int32_t root,
                                             const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_all_gather(unisono_comm* comm, const void* in, void* out,
                                              size_t count, unisono_type type,
                                              const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_all_gather_v(unisono_comm* comm, const void* in, void* out,
                                                const size_t* counts, const size_t* displacements,
                                                unisono_type type,
                                                const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_reduce_scatter(unisono_comm* comm, const void* in, void* out,
                                                  size_t count, unisono_type type, unisono_op op,
                                                  const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_reduce_scatter_v(unisono_comm* comm, const void* in, void* out,
                                                    const size_t* counts, unisono_type type,
                                                    unisono_op op,
                                                    const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_gather(unisono_comm* comm, const void* in, void* out,
                                          size_t count, unisono_type type, int32_t root,
                                          const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_gather_v(unisono_comm* comm, const void* in, size_t in_count,
                                            void* out, const size_t* counts,
                                            const size_t* displacements, unisono_type type,
                                            int32_t root, const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_scatter(unisono_comm* comm, const void* in, void* out,
                                           size_t count, unisono_type type, int32_t root,
                                           const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_scatter_v(unisono_comm* comm, const void* in,
                                             const size_t* counts, const size_t* displacements,
                                             void* out, size_t out_count, unisono_type type,
                                             int32_t root, const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_all_to_all(unisono_comm* comm, const void* in, void* out,
                                              size_t count, unisono_type type,
                                              const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_all_to_all_v(unisono_comm* comm, const void* in,
                                                const size_t* in_counts,
                                                const size_t* in_displacements, void* out,
                                                const size_t* out_counts,
                                                const size_t* out_displacements, unisono_type type,
                                                const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_scan(unisono_comm* comm, const void* in, void* out, size_t count,
                                        unisono_type type, unisono_op op,
                                        const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_exscan(unisono_comm* comm, const void* in, void* out,
                                          size_t count, unisono_type type, unisono_op op,
                                          const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_send(unisono_comm* comm, const void* data, size_t count,
                                        unisono_type type, int32_t target, uint32_t tag,
                                        const unisono_call_options* options);
/* `received` may be null. */
UNISONO_C_API unisono_code unisono_receive(unisono_comm* comm, void* data, size_t count,
                                           unisono_type type, int32_t source, uint32_t tag,
                                           unisono_received* received,
                                           const unisono_call_options* options);
UNISONO_C_API unisono_code unisono_send_receive(unisono_comm* comm, const void* sent,
                                                size_t sent_count, int32_t target, void* data,
                                                size_t count, int32_t source, unisono_type type,
                                                uint32_t tag, unisono_received* received,
                                                const unisono_call_options* options);

/* ---- Requests: Request of unisono/request.h -------------------------------------------------- */

/* Outcome of a request for its callback. `message` is valid until the callback returns. */
typedef void (*unisono_completion)(void* context, unisono_code code, int32_t rank,
                                   const char* message);

/* *finished becomes 1 or 0. The outcome concerns the test; ask unisono_request_wait() for the
 * call's. */
UNISONO_C_API unisono_code unisono_request_test(unisono_request* request, int32_t* finished);
/* Waits and returns the call's outcome. The request stays to be freed. */
UNISONO_C_API unisono_code unisono_request_wait(unisono_request* request);
/* The same for at most `limit_ms`; *finished tells which it was, and is 1 with a failure too. */
UNISONO_C_API unisono_code unisono_request_wait_for(unisono_request* request, int64_t limit_ms,
                                                    int32_t* finished);
/* The outcome so far, without waiting: UNISONO_OK while the call runs. */
UNISONO_C_API unisono_code unisono_request_status(const unisono_request* request);
/* Calls `callback` once, when the request is finished; at once where it is. */
UNISONO_C_API unisono_code unisono_request_on_completion(unisono_request* request,
                                                         unisono_completion callback,
                                                         void* context);
/* What a finished receive got, `count` in bytes. */
UNISONO_C_API unisono_code unisono_request_received(const unisono_request* request,
                                                    unisono_received* received);
/* Frees the handle and never waits; `release(context)` is called when no peer can touch the
 * buffers any more. After a failure the handle is still there, and nothing will be released. */
UNISONO_C_API unisono_code unisono_request_detach(unisono_request* request,
                                                  void (*release)(void* context), void* context);
/* Waits where the call still runs, because its buffers are lent, and frees. */
UNISONO_C_API void unisono_request_free(unisono_request* request);
/* Waits for all, and returns the first failure in their order. Null entries are passed over. */
UNISONO_C_API unisono_code unisono_wait_all(unisono_request* const* requests, size_t count);
/* Waits for one and sets *index to the lowest of those finished. Null entries are passed over. */
UNISONO_C_API unisono_code unisono_wait_any(unisono_request* const* requests, size_t count,
                                            size_t* index);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* allocate() and release() of unisono/shared_buffer.h. */
UNISONO_C_API unisono_code unisono_allocate(unisono_comm* comm, size_t bytes,
                                            unisono_memory_kind kind, void** data);
UNISONO_C_API unisono_code unisono_release(unisono_comm* comm, void* data);

/* Host memory of the same kind that may outlive its communicator and the job. */
typedef struct unisono_memory unisono_memory;
UNISONO_C_API unisono_code unisono_memory_allocate(unisono_comm* comm, size_t bytes,
                                                   unisono_memory** memory);
UNISONO_C_API void* unisono_memory_data(const unisono_memory* memory);
UNISONO_C_API void unisono_memory_free(unisono_memory* memory);

/* RegisteredMemory of unisono/registered_memory.h. `fd` -1: the memory has no file. */
typedef struct unisono_registration unisono_registration;
UNISONO_C_API unisono_code unisono_register(unisono_comm* comm, void* data, size_t bytes,
                                            int32_t fd, uint64_t offset,
                                            unisono_registration** registration);
UNISONO_C_API unisono_peer_access
unisono_registration_peer_access(const unisono_registration* registration);
/* Why not mapped; empty where it is. Valid as long as the registration. */
UNISONO_C_API const char* unisono_registration_reason(const unisono_registration* registration);
UNISONO_C_API int unisono_registration_is_pinned(const unisono_registration* registration);
UNISONO_C_API const char* unisono_registration_pinned_reason(
    const unisono_registration* registration);
UNISONO_C_API void unisono_registration_free(unisono_registration* registration);

/* ---- Objects: byte strings whose sizes differ, unisono/objects.h ----------------------------- */

/* ObjectOptions. A negative time-out is UNISONO_INVALID_ARGUMENT on every rank, with the rank at
 * fault. */
typedef struct unisono_object_options {
  size_t size;
  size_t staging_bytes; /* 0: UNISONO_OBJECT_STAGING */
  uint64_t size_limit;  /* 0: UNISONO_OBJECT_LIMIT */
  int64_t timeout_ms;   /* of each round; 0: the communicator's */
} unisono_object_options;
#define UNISONO_OBJECT_OPTIONS_INIT \
  { sizeof(unisono_object_options), 0, 0, 0 }

/* What an object call has brought, to be freed; its bytes are valid until then. */
typedef struct unisono_objects unisono_objects;
UNISONO_C_API size_t unisono_objects_count(const unisono_objects* objects);
/* Null for an index that is none. */
UNISONO_C_API const void* unisono_objects_data(const unisono_objects* objects, size_t index);
UNISONO_C_API size_t unisono_objects_bytes(const unisono_objects* objects, size_t index);
UNISONO_C_API void unisono_objects_free(unisono_objects* objects);

/* Every rank's object by rank; at the others than root none. */
UNISONO_C_API unisono_code unisono_gather_objects(unisono_comm* comm, const void* data,
                                                  size_t bytes, int32_t root,
                                                  const unisono_object_options* options,
                                                  unisono_objects** objects);
UNISONO_C_API unisono_code unisono_all_gather_objects(unisono_comm* comm, const void* data,
                                                      size_t bytes,
                                                      const unisono_object_options* options,
                                                      unisono_objects** objects);
/* One object. `data` is looked at only at root. */
UNISONO_C_API unisono_code unisono_broadcast_object(unisono_comm* comm, const void* data,
                                                    size_t bytes, int32_t root,
                                                    const unisono_object_options* options,
                                                    unisono_objects** object);
/* Rank r gets data[r] of bytes[r] bytes. Both have `count` entries and are looked at only at
 * root. */
UNISONO_C_API unisono_code unisono_scatter_objects(unisono_comm* comm, const void* const* data,
                                                   const size_t* bytes, size_t count, int32_t root,
                                                   const unisono_object_options* options,
                                                   unisono_objects** object);

/* A part of `source`'s object, which has `size` bytes; ObjectSink. Returns 0, or another number to
 * take no more: then the call ends with UNISONO_ABORTED on this rank alone. */
typedef int (*unisono_object_sink)(void* context, int32_t source, uint64_t offset, uint64_t size,
                                   const void* data, size_t bytes);
/* Fills `room` with the object's bytes from `offset` on; ObjectProducer. Returns 0, or another
 * number where it cannot. */
typedef int (*unisono_object_producer)(void* context, uint64_t offset, void* room, size_t bytes);

/* What a rank sends in a stream: `data`, or where that is null what `producer` makes. */
typedef struct unisono_object_source {
  size_t size;
  const void* data;
  uint64_t bytes;
  unisono_object_producer producer;
  void* context;
} unisono_object_source;
#define UNISONO_OBJECT_SOURCE_INIT \
  { sizeof(unisono_object_source), NULL, 0, NULL, NULL }

UNISONO_C_API unisono_code unisono_stream_gather_objects(unisono_comm* comm,
                                                         const unisono_object_source* object,
                                                         int32_t root, unisono_object_sink sink,
                                                         void* context,
                                                         const unisono_object_options* options);
UNISONO_C_API unisono_code unisono_stream_all_gather_objects(unisono_comm* comm,
                                                             const unisono_object_source* object,
                                                             unisono_object_sink sink,
                                                             void* context,
                                                             const unisono_object_options* options);
UNISONO_C_API unisono_code unisono_stream_broadcast_object(unisono_comm* comm,
                                                           const unisono_object_source* object,
                                                           int32_t root, unisono_object_sink sink,
                                                           void* context,
                                                           const unisono_object_options* options);

/* ---- Threads and traffic -------------------------------------------------------------------- */

/* HelperThreads of unisono/helper_threads.h. */
typedef struct unisono_helper_threads unisono_helper_threads;
UNISONO_C_API unisono_code unisono_helper_threads_note(int32_t threads,
                                                       unisono_helper_threads** note);
UNISONO_C_API void unisono_helper_threads_free(unisono_helper_threads* note);

/* SpawnOptions of unisono/communicator.h. */
typedef struct unisono_spawn_options {
  size_t size;
  const char* transport;  /* null: as unisono_init_options.transport */
  int64_t timeout_ms;     /* 0: UNISONO_TIMEOUT */
  const int32_t* devices; /* by rank, repeated where there are fewer; null: -1 for all */
  int32_t device_count;
  int32_t processes; /* 1: ranks are forked, 0: threads */
} unisono_spawn_options;
#define UNISONO_SPAWN_OPTIONS_INIT \
  { sizeof(unisono_spawn_options), NULL, 0, NULL, 0, 0 }
/* Runs body(context, comm) as ranks 0 to n - 1 and waits for all. `comm` is valid until the body
 * returns 0, or another number: then the others are aborted, and the outcome names the rank
 * (UNISONO_ABORTED, of processes UNISONO_RANK_FAILED, also where one died). Processes must come
 * before any engine of this one (UNISONO_INVALID_ARGUMENT otherwise). `options` may be null. */
UNISONO_C_API unisono_code unisono_spawn(int32_t n, int (*body)(void* context, unisono_comm* comm),
                                         void* context, const unisono_spawn_options* options);

/* Traffic and TrafficReport of unisono/traffic.h. */
typedef struct unisono_traffic {
  size_t size;
  uint64_t calls; /* finished; 0 for a peer */
  uint64_t messages_sent, bytes_sent, messages_received, bytes_received;
} unisono_traffic;
#define UNISONO_TRAFFIC_INIT \
  { sizeof(unisono_traffic), 0, 0, 0, 0, 0 }
UNISONO_C_API unisono_code unisono_traffic_of_collective(const unisono_comm* comm,
                                                         unisono_collective collective,
                                                         unisono_traffic* traffic);
UNISONO_C_API unisono_code unisono_traffic_of_peer(const unisono_comm* comm, int32_t rank,
                                                   unisono_traffic* traffic);

#ifdef __cplusplus
}
#endif
