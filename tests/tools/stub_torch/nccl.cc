// NCCL's C interface without a GPU: it moves nothing, and as versions before 2.30 do, those take no
// two ranks on one GPU.
extern "C" {
int ncclGetVersion(int* version) {
  *version = STUB_NCCL_VERSION;
  return 0;
}
int ncclGetUniqueId(void*) { return 0; }
int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return STUB_NCCL_VERSION < 23000 ? 5 : 0; }
int ncclCommInitRank(void*, int, ...) { return 0; }
int ncclAllReduce(const void*, ...) { return 0; }
const char* ncclGetErrorString(int) { return "invalid usage"; }
}
