// The words for numbers that verbs report, and for a library that cannot be loaded.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "rail_scripted_api.h"

namespace unisono::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(VerbsWords, NameNumberMeaningAndRemedyOfACompletion) {
  EXPECT_THAT(describe(IBV_WC_RETRY_EXC_ERR),
              AllOf(StartsWith("RETRY_EXC_ERR (12): transport retry counter exceeded"),
                    HasSubstr("dead"), HasSubstr("cable"), HasSubstr("PFC")));
  EXPECT_THAT(describe(IBV_WC_REM_ACCESS_ERR), StartsWith("REM_ACCESS_ERR (10): "));
  EXPECT_THAT(describe(IBV_WC_WR_FLUSH_ERR), HasSubstr("the first other error tells why"));
}

TEST(VerbsWords, KnowEveryCompletionStatusOnOneLine) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    const std::string text = describe(static_cast<ibv_wc_status>(status));
    EXPECT_THAT(text, AllOf(HasSubstr("(" + std::to_string(status) + "): "),
                            Not(HasSubstr("unknown")), Not(HasSubstr("\n"))));
  }
  EXPECT_THAT(describe(static_cast<ibv_wc_status>(31)), HasSubstr("(31): unknown"));
}

TEST(VerbsWords, KnowEveryEventAndWhatItIsAbout) {
  for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_WQ_FATAL; ++type) {
    ibv_async_event event{};
    event.event_type = static_cast<ibv_event_type>(type);
    EXPECT_THAT(describe(event),
                AllOf(HasSubstr("(" + std::to_string(type) + "): "), Not(HasSubstr("unknown"))));
  }
  ibv_async_event event{};
  event.event_type = IBV_EVENT_PORT_ERR;
  event.element.port_num = 2;
  EXPECT_THAT(describe(event), StartsWith("PORT_ERR (10): port 2: "));
  ibv_qp qp{};
  qp.qp_num = 0x11;
  event.event_type = IBV_EVENT_QP_FATAL;
  event.element.qp = &qp;
  EXPECT_THAT(describe(event), StartsWith("QP_FATAL (1): queue pair 17: "));
  event.event_type = static_cast<ibv_event_type>(31);
  EXPECT_THAT(describe(event), HasSubstr("(31): unknown"));
}

class MemlockLimit {
 public:
  explicit MemlockLimit(rlim_t soft) {
    EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &before_), 0);
    const rlimit now{soft, before_.rlim_max};
    is_set_ = setrlimit(RLIMIT_MEMLOCK, &now) == 0;
  }
  ~MemlockLimit() { setrlimit(RLIMIT_MEMLOCK, &before_); }
  bool is_set() const { return is_set_; }

 private:
  rlimit before_{};
  bool is_set_ = false;
};

TEST(VerbsWords, NameTheLimitOfLockedMemoryAndHowToRaiseIt) {
  const MemlockLimit limit(48 * 1024);
  ASSERT_TRUE(limit.is_set());
  const Status status = call_failed("ibv_reg_mr", "mlx5_0 port 1", ENOMEM, 1 << 20);
  EXPECT_EQ(status.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(
      status.message(),
      AllOf(StartsWith("mlx5_0 port 1: ibv_reg_mr failed for 1048576 bytes"),
            HasSubstr("48 KiB, less than this call alone needs"), HasSubstr("ulimit -l unlimited"),
            HasSubstr("LimitMEMLOCK=infinity"), HasSubstr("--ulimit memlock=-1")));
  EXPECT_THAT(call_failed("ibv_reg_mr", "mlx5_0 port 1", ENOMEM, 4096).message(),
              Not(HasSubstr("less than")));
}

TEST(VerbsWords, DoNotBlameALimitThatIsNotThere) {
  const MemlockLimit limit(RLIM_INFINITY);
  if (!limit.is_set()) GTEST_SKIP() << "this user may not lift the limit";
  const Status status = call_failed("ibv_create_cq", "mlx5_0 port 1", ENOMEM);
  EXPECT_EQ(status.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("unlimited"), Not(HasSubstr("ulimit"))));
}

TEST(VerbsWords, ClassifyFailedCalls) {
  struct Case {
    int error;
    std::size_t bytes;
    ErrorCode code;
    const char* says;
  };
  for (const Case& each : {Case{EMFILE, 0, ErrorCode::kOutOfResources, "ulimit -n"},
                           Case{ENFILE, 0, ErrorCode::kOutOfResources, "fs.file-max"},
                           Case{ENOSPC, 0, ErrorCode::kOutOfResources, "queue pairs"},
                           Case{EACCES, 0, ErrorCode::kUnsupported, "/dev/infiniband"},
                           Case{EPERM, 0, ErrorCode::kUnsupported, "--device"},
                           Case{EFAULT, 64, ErrorCode::kInvalidArgument, "not mapped"},
                           Case{EINVAL, 64, ErrorCode::kInvalidArgument, "does not accept"},
                           Case{EINVAL, 0, ErrorCode::kSystem, "does not accept"},
                           Case{EOPNOTSUPP, 0, ErrorCode::kUnsupported, "cannot do this"},
                           Case{EIO, 0, ErrorCode::kSystem, "dmesg"},
                           Case{EBUSY, 0, ErrorCode::kSystem, "errno 16"}}) {
    const Status status = call_failed("ibv_call", "rxe0 port 1", each.error, each.bytes);
    EXPECT_EQ(status.code(), each.code) << std::strerror(each.error);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("rxe0 port 1: ibv_call failed"),
                      HasSubstr(std::strerror(each.error)), HasSubstr(each.says)));
  }
}

TEST(VerbsWords, FindTheErrorOfBothKindsOfResult) {
  errno = EBUSY;
  EXPECT_EQ(error_of(0), 0);
  EXPECT_EQ(error_of(ENOMEM), ENOMEM);
  EXPECT_EQ(error_of(-1), EBUSY);
  errno = 0;
  EXPECT_EQ(error_of(-1), EIO) << "a failure is never taken for success";
}

TEST(VerbsWords, TrustTheNodeMoreThanTheLibraryAboutAFailedOpen) {
  ibv_device device{};
  EXPECT_EQ(open_error(device, EIO), EIO) << "nothing is known of its node";
  std::strcpy(device.dev_name, "uverbs-no-such-node");
  EXPECT_EQ(open_error(device, EIO), ENOENT);
  EXPECT_THAT(call_failed("ibv_open_device", "", ENOENT).message(),
              AllOf(StartsWith("ibv_open_device failed"), HasSubstr("--device")));
}

TEST(VerbsLibrary, SaysWhichPackageHasIt) {
  const auto library = load_verbs_library_file("libunisono-no-such-library.so.1");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(library.error().message(),
              AllOf(HasSubstr("libunisono-no-such-library.so.1"), HasSubstr("libibverbs1"),
                    HasSubstr("ibverbs-providers")));
}

TEST(VerbsLibrary, SaysWhichFunctionIsMissing) {
  const auto library = load_verbs_library_file("libm.so.6");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(library.error().message(),
              AllOf(HasSubstr("libm.so.6 lacks ibv_get_device_list, "),
                    Not(HasSubstr("ibv_reg_dmabuf_mr")), HasSubstr("rdma-core")));
}

TEST(VerbsLibrary, IsLoadedOnce) {
  const auto first = load_verbs_library();
  const auto second = load_verbs_library();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (!first) GTEST_SKIP() << first.error().message();
  EXPECT_EQ(first->get(), second->get());
}

}  // namespace
}  // namespace unisono::verbs
