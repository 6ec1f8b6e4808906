// What torch's own library is here: it needs an NCCL, and brings one.
extern "C" int ncclGetVersion(int* version);

extern "C" int version_of_nccl() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}
