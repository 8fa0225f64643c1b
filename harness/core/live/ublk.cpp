#include "live/ublk.hpp"

#include "base/check.hpp"

#ifdef FLASHLAB_HAVE_UBLK

#include <fcntl.h>
#include <liburing.h>
#include <linux/ublk_cmd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "live/priority.hpp"

namespace flashlab::live {

namespace {

// linux/ublk_cmd.h of newer kernels has these; the numbers without ioctl's bits are being retired.
constexpr auto kInfo = _IOR('u', UBLK_CMD_GET_DEV_INFO, ublksrv_ctrl_cmd);
constexpr auto kAdd = _IOWR('u', UBLK_CMD_ADD_DEV, ublksrv_ctrl_cmd);
constexpr auto kStart = _IOWR('u', UBLK_CMD_START_DEV, ublksrv_ctrl_cmd);
constexpr auto kStop = _IOWR('u', UBLK_CMD_STOP_DEV, ublksrv_ctrl_cmd);
constexpr auto kSetLimits = _IOWR('u', UBLK_CMD_SET_PARAMS, ublksrv_ctrl_cmd);
constexpr auto kRemove = _IOWR('u', UBLK_CMD_DEL_DEV, ublksrv_ctrl_cmd);
constexpr auto kBeginRecovery = _IOWR('u', UBLK_CMD_START_USER_RECOVERY, ublksrv_ctrl_cmd);
constexpr auto kEndRecovery = _IOWR('u', UBLK_CMD_END_USER_RECOVERY, ublksrv_ctrl_cmd);
constexpr auto kRemoveLater = _IOR('u', 0x14, ublksrv_ctrl_cmd);
constexpr auto kFetch = _IOWR('u', UBLK_IO_FETCH_REQ, ublksrv_io_cmd);
constexpr auto kAnswerAndFetch = _IOWR('u', UBLK_IO_COMMIT_AND_FETCH_REQ, ublksrv_io_cmd);

constexpr std::uint32_t kAnyNumber = UINT32_MAX;
constexpr unsigned kPageShift = 12;
constexpr std::uint64_t kWoken = UINT64_MAX;  // of no tag
constexpr auto kRecoveryLimit = std::chrono::seconds(20);
constexpr auto kRecoveryStep = std::chrono::milliseconds(20);

[[noreturn]] void fail(const std::string& what, int error) {
  throw OperatingError(ErrorKind::target, "ublk: " + what + ": " + std::strerror(error));
}

}  // namespace

// These two are members of a class that others name.
class UblkDescriptor {
 public:
  explicit UblkDescriptor(int fd) : fd_(fd) {}
  ~UblkDescriptor() { close(); }
  UblkDescriptor(const UblkDescriptor&) = delete;
  UblkDescriptor& operator=(const UblkDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// Commands to the driver, one at a time. Each call returns 0 or an errno.
class UblkControl {
 public:
  UblkControl() : file_(::open("/dev/ublk-control", O_RDWR | O_CLOEXEC)) {
    if (file_.get() < 0) fail("/dev/ublk-control", errno);
    if (const int error = io_uring_queue_init(4, &ring_, IORING_SETUP_SQE128); error < 0) {
      fail("io_uring", -error);
    }
  }
  ~UblkControl() { io_uring_queue_exit(&ring_); }
  UblkControl(const UblkControl&) = delete;
  UblkControl& operator=(const UblkControl&) = delete;

  template <class Buffer>
  int call(unsigned long command, std::uint32_t number, Buffer& buffer) {
    ublksrv_ctrl_cmd with{};
    with.addr = reinterpret_cast<std::uint64_t>(&buffer);
    with.len = sizeof(Buffer);
    return call(command, number, with);
  }

  int call(unsigned long command, std::uint32_t number, ublksrv_ctrl_cmd with = {}) {
    with.dev_id = number;
    with.queue_id = UINT16_MAX;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    FLASHLAB_CHECK(sqe != nullptr);
    io_uring_prep_rw(IORING_OP_URING_CMD, sqe, file_.get(), nullptr, 0, 0);
    sqe->cmd_op = static_cast<std::uint32_t>(command);
    std::memcpy(sqe->cmd, &with, sizeof(with));
    io_uring_cqe* cqe = nullptr;
    int error = io_uring_submit(&ring_);
    while (error >= 0) {
      error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == 0) break;
      if (error == -EINTR) error = 0;
    }
    if (error < 0) return -error;
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    return result < 0 ? -result : 0;
  }

 private:
  UblkDescriptor file_;
  io_uring ring_{};
};

namespace {

int open_served(std::uint32_t number) {
  const std::string path = "/dev/ublkc" + std::to_string(number);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

std::optional<ublksrv_ctrl_dev_info> info_of(UblkControl& control, std::uint32_t number) {
  ublksrv_ctrl_dev_info info{};
  const int error = control.call(kInfo, number, info);
  if (error == ENODEV) return std::nullopt;
  if (error != 0) fail("device " + std::to_string(number), error);
  return info;
}

std::optional<std::uint64_t> mark_of(UblkControl& control, std::uint32_t number) {
  const auto info = info_of(control, number);
  if (!info.has_value()) return std::nullopt;
  return info->ublksrv_flags;
}

}  // namespace

// One queue. Only the thread that fetches requests may answer them: what the device answers
// elsewhere it is told of, and woken.
class Ublk::Server {
 public:
  Server(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits)
      : device_(device), limits_(limits) {
    require(limits.depth >= 1 && limits.depth <= UBLK_MAX_QUEUE_DEPTH, "depth: from 1 to 4,096");
    add(mark);
    try {
      set_limits();
      begin_serving();
      start();
    } catch (...) {
      end();
      throw;
    }
  }

  Server(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits, std::uint32_t number)
      : device_(device), limits_(limits), number_(number) {
    if (mark_of(control_, number) != mark) fail("device " + std::to_string(number), ENODEV);
    begin_recovery();
    try {
      begin_serving();
      tell_process(kEndRecovery, "the device cannot be served again");
    } catch (...) {
      end();
      throw;
    }
  }

  ~Server() { end(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  void take() { control_.call(kStop, number_); }

 private:
  // A waiting request of the kernel's.
  class Answer final : public Ticket {
   public:
    Answer(Server& server, std::uint16_t tag, std::int32_t done)
        : server_(server), tag_(tag), done_(done) {}
    void reply(int error) override { server_.answer(tag_, error == 0 ? done_ : -error); }

   private:
    Server& server_;
    std::uint16_t tag_;
    std::int32_t done_;
  };

  struct Answered {
    std::uint16_t tag;
    std::int32_t result;
  };

  void add(std::uint64_t mark) {
    ublksrv_ctrl_dev_info info{};
    info.nr_hw_queues = 1;
    info.queue_depth = static_cast<std::uint16_t>(limits_.depth);
    info.max_io_buf_bytes = static_cast<std::uint32_t>(limits_.largest.count());
    info.dev_id = kAnyNumber;
    info.ublksrv_flags = mark;
    if (limits_.recoverable) info.flags = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;
    if (const int error = control_.call(kAdd, kAnyNumber, info); error != 0) {
      fail("a device cannot be added", error);
    }
    number_ = info.dev_id;
  }

  void set_limits() {
    const auto sectors = [](Bytes size) {
      return static_cast<std::uint32_t>(size.count() / kSectorBytes);
    };
    ublk_params all{};
    all.len = sizeof(all);
    all.types = UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD;
    all.basic.attrs = UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA;
    if (limits_.rotational) all.basic.attrs |= UBLK_ATTR_ROTATIONAL;
    all.basic.logical_bs_shift = 9;
    all.basic.physical_bs_shift = kPageShift;
    all.basic.io_min_shift = kPageShift;
    all.basic.io_opt_shift = kPageShift;
    all.basic.max_sectors = sectors(limits_.largest);
    all.basic.dev_sectors = static_cast<std::uint64_t>(device_.visible().count() / kSectorBytes);
    all.discard.discard_granularity = 1U << kPageShift;
    all.discard.max_discard_sectors = sectors(limits_.discard);
    all.discard.max_discard_segments = 1;
    all.discard.max_write_zeroes_sectors = sectors(limits_.largest);
    if (const int error = control_.call(kSetLimits, number_, all); error != 0) {
      fail("the queue's limits", error);
    }
  }

  void begin_serving() {
    file_ = open_served(number_);
    if (file_ < 0) fail("/dev/ublkc" + std::to_string(number_), errno);
    wake_ = ::eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) fail("eventfd", errno);
    void* asked = ::mmap(nullptr, asked_bytes(), PROT_READ, MAP_SHARED | MAP_POPULATE, file_,
                         UBLKSRV_CMD_BUF_OFFSET);
    if (asked == MAP_FAILED) fail("requests", errno);
    asked_ = static_cast<const ublksrv_io_desc*>(asked);
    // Touched as far as requests are large; zeroes follow, for those that write them.
    void* memory = ::mmap(nullptr, memory_bytes(), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("memory", errno);
    memory_ = static_cast<std::byte*>(memory);
    if (const int error = io_uring_queue_init(limits_.depth + 1, &ring_, 0); error < 0) {
      fail("io_uring", -error);
    }
    has_ring_ = true;
    std::unique_lock lock(mutex_);
    thread_ = std::thread([this] { serve(); });
    began_.wait(lock, [this] { return fetching_.has_value(); });
    if (*fetching_ != 0) fail("requests cannot be fetched", *fetching_);
  }

  void start() { tell_process(kStart, "the device cannot be started"); }

  // The kernel lets go of a dead process in its own time.
  void begin_recovery() {
    const auto deadline = std::chrono::steady_clock::now() + kRecoveryLimit;
    int error = control_.call(kBeginRecovery, number_);
    while (error == EBUSY && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kRecoveryStep);
      error = control_.call(kBeginRecovery, number_);
    }
    if (error != 0) fail("the device cannot be recovered", error);
  }

  void tell_process(unsigned long command, const char* what) {
    ublksrv_ctrl_cmd with{};
    with.data[0] = static_cast<__u64>(::getpid());
    if (const int error = control_.call(command, number_, with); error != 0) fail(what, error);
  }

  // The kernel aborts what was fetched once the device is stopped, and the thread ends with the
  // last of it. The driver lets a device go when nobody has its file open.
  void end() {
    take();
    if (thread_.joinable()) thread_.join();
    if (has_ring_) io_uring_queue_exit(&ring_);
    if (memory_ != nullptr) ::munmap(memory_, memory_bytes());
    if (asked_ != nullptr) ::munmap(const_cast<ublksrv_io_desc*>(asked_), asked_bytes());
    if (wake_ >= 0) ::close(wake_);
    if (file_ >= 0) ::close(file_);
    // Whoever still has the block device open keeps the number, not us.
    if (control_.call(kRemoveLater, number_) == EOPNOTSUPP) control_.call(kRemove, number_);
  }

  void serve() {
    run_promptly();
    fetch_all();
    std::vector<Answered> answered;
    while (fetched_ > 0) {
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      FLASHLAB_CHECK(submitted >= 0 || submitted == -EINTR);
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        const std::uint64_t what = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        if (what == kWoken) {
          wait_to_be_woken();
        } else if (result == UBLK_IO_RES_OK) {
          handle(static_cast<std::uint16_t>(what));
        } else {
          --fetched_;  // the device goes: this one is not asked for again
        }
        take_answered(answered);
      }
    }
  }

  void fetch_all() {
    wait_to_be_woken();
    for (std::uint32_t tag = 0; tag < limits_.depth; ++tag) {
      command(kFetch, static_cast<std::uint16_t>(tag), 0);
    }
    fetched_ = limits_.depth;
    const int submitted = io_uring_submit(&ring_);
    int error = submitted < 0 ? -submitted : 0;
    // What the kernel refuses is answered at once.
    io_uring_cqe* cqe = nullptr;
    if (error == 0 && io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe->res < 0) error = -cqe->res;
    if (submitted < 0) fetched_ = 0;
    const std::lock_guard lock(mutex_);
    serving_ = std::this_thread::get_id();
    fetching_ = error;
    began_.notify_all();
  }

  io_uring_sqe* entry() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe != nullptr) return sqe;
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
    FLASHLAB_CHECK(sqe != nullptr);
    return sqe;
  }

  void wait_to_be_woken() {
    io_uring_sqe* sqe = entry();
    io_uring_prep_read(sqe, wake_, &woken_, sizeof(woken_), 0);
    io_uring_sqe_set_data64(sqe, kWoken);
  }

  void command(unsigned long which, std::uint16_t tag, std::int32_t result) {
    io_uring_sqe* sqe = entry();
    io_uring_prep_rw(IORING_OP_URING_CMD, sqe, file_, nullptr, 0, 0);
    sqe->cmd_op = static_cast<std::uint32_t>(which);
    ublksrv_io_cmd with{};
    with.tag = tag;
    with.result = result;
    with.addr = reinterpret_cast<std::uint64_t>(memory_of(tag));
    std::memcpy(sqe->cmd, &with, sizeof(with));
    io_uring_sqe_set_data64(sqe, tag);
  }

  // What the block layer has checked against the device's size and limits is not checked again.
  void handle(std::uint16_t tag) {
    const ublksrv_io_desc& asked = asked_[tag];
    const Lba begin{static_cast<std::int64_t>(asked.start_sector)};
    const Sectors sectors{static_cast<std::int64_t>(asked.nr_sectors)};
    const auto length = static_cast<std::size_t>(to_bytes(sectors).count());
    const bool fua = (asked.op_flags & UBLK_IO_F_FUA) != 0;
    const auto done = static_cast<std::int32_t>(length);
    auto ticket = [&](std::int32_t value) { return std::make_unique<Answer>(*this, tag, value); };
    switch (ublksrv_get_op(&asked)) {
      case UBLK_IO_OP_READ:
        return device_.read(to_bytes(begin), {memory_of(tag), length}, ticket(done));
      case UBLK_IO_OP_WRITE:
        return device_.write(to_bytes(begin), {memory_of(tag), length}, ticket(done), fua);
      case UBLK_IO_OP_WRITE_ZEROES:
        return device_.write(to_bytes(begin), {memory_of(limits_.depth), length}, ticket(0), fua);
      case UBLK_IO_OP_DISCARD:
        return device_.trim({begin, begin + sectors}, ticket(0));
      case UBLK_IO_OP_FLUSH:
        return device_.flush(ticket(0));
      default:
        return answer(tag, -EOPNOTSUPP);
    }
  }

  // From any thread.
  void answer(std::uint16_t tag, std::int32_t result) {
    if (std::this_thread::get_id() == serving_) return command(kAnswerAndFetch, tag, result);
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      is_first = answered_.empty();
      answered_.push_back({tag, result});
    }
    const std::uint64_t one = 1;
    if (is_first) FLASHLAB_CHECK(::write(wake_, &one, sizeof(one)) == sizeof(one));
  }

  void take_answered(std::vector<Answered>& answered) {
    {
      const std::lock_guard lock(mutex_);
      answered.swap(answered_);
    }
    for (const Answered& each : answered) command(kAnswerAndFetch, each.tag, each.result);
    answered.clear();
  }

  [[nodiscard]] std::size_t asked_bytes() const {
    constexpr std::size_t page = std::size_t{1} << kPageShift;
    return (limits_.depth * sizeof(ublksrv_io_desc) + page - 1) / page * page;
  }
  [[nodiscard]] std::size_t memory_bytes() const {
    return (limits_.depth + 1) * static_cast<std::size_t>(limits_.largest.count());
  }
  [[nodiscard]] std::byte* memory_of(std::uint32_t tag) const {
    return memory_ + tag * static_cast<std::size_t>(limits_.largest.count());
  }

  LiveDevice& device_;
  const UblkLimits limits_;
  UblkControl control_;
  std::uint32_t number_ = 0;
  int file_ = -1;
  int wake_ = -1;
  std::uint64_t woken_ = 0;
  const ublksrv_io_desc* asked_ = nullptr;
  std::byte* memory_ = nullptr;
  io_uring ring_{};
  bool has_ring_ = false;
  std::uint32_t fetched_ = 0;  // that the kernel has, or has given us and will be given back
  std::thread thread_;
  std::thread::id serving_;  // before anything is asked for

  std::mutex mutex_;
  std::condition_variable began_;
  std::optional<int> fetching_;  // an errno, once all requests were asked for
  std::vector<Answered> answered_;
};

Ublk::Ublk(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits)
    : server_(std::make_unique<Server>(device, mark, limits)) {}

Ublk::Ublk(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits, int number)
    : server_(std::make_unique<Server>(device, mark, limits, static_cast<std::uint32_t>(number))) {}

int Ublk::number() const { return static_cast<int>(server_->number()); }

void Ublk::take() { server_->take(); }

bool Ublk::available() { return true; }

std::optional<std::uint64_t> ublk_mark(int number) {
  UblkControl control;
  return mark_of(control, static_cast<std::uint32_t>(number));
}

bool ublk_is_recoverable(int number) {
  UblkControl control;
  const auto info = info_of(control, static_cast<std::uint32_t>(number));
  return info.has_value() && (info->flags & UBLK_F_USER_RECOVERY) != 0;
}

void ublk_take(int number, std::uint64_t mark) {
  UblkControl control;
  const auto which = static_cast<std::uint32_t>(number);
  if (mark_of(control, which) != mark) return;
  control.call(kStop, which);
}

// As long as its own file is open its number is nobody else's; a process that serves it still has
// that, and nobody else gets it.
void ublk_remove(int number, std::uint64_t mark) {
  UblkControl control;
  const auto which = static_cast<std::uint32_t>(number);
  if (mark_of(control, which) != mark) return;
  UblkDescriptor held(open_served(which));
  if (mark_of(control, which) != mark) return;  // it had gone meanwhile, and its number was taken
  int error = control.call(kRemoveLater, which);
  held.close();
  if (error == EOPNOTSUPP) error = control.call(kRemove, which);
  if (error != 0 && error != ENODEV) fail("device " + std::to_string(number), error);
}

}  // namespace flashlab::live

#else

namespace flashlab::live {

namespace {

[[noreturn]] void fail() {
  throw OperatingError(ErrorKind::target,
                       "the core was built without ublk: it needs liburing-dev and the headers of "
                       "Linux 6.0, then make env");
}

}  // namespace

class Ublk::Server {};

Ublk::Ublk(LiveDevice& /*device*/, std::uint64_t /*mark*/, const UblkLimits& /*limits*/) { fail(); }

Ublk::Ublk(LiveDevice& /*device*/, std::uint64_t /*mark*/, const UblkLimits& /*limits*/,
           int /*number*/) {
  fail();
}

int Ublk::number() const { return -1; }

void Ublk::take() {}

bool Ublk::available() { return false; }

std::optional<std::uint64_t> ublk_mark(int /*number*/) { return std::nullopt; }

bool ublk_is_recoverable(int /*number*/) { return false; }

void ublk_take(int /*number*/, std::uint64_t /*mark*/) {}

void ublk_remove(int /*number*/, std::uint64_t /*mark*/) {}

}  // namespace flashlab::live

#endif

namespace flashlab::live {

Ublk::~Ublk() = default;

}  // namespace flashlab::live
