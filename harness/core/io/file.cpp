#include "io/file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#ifdef FLASHLAB_HAVE_LIBURING
#include <liburing.h>
#endif

#include "base/check.hpp"
#include "io/at_once.hpp"

namespace flashlab::io {

namespace {

[[noreturn]] void throw_errno(int error, const std::string& what) {
  const ErrorKind kind =
      error == ENOSPC || error == EDQUOT || error == EFBIG ? ErrorKind::disk_full : ErrorKind::io;
  throw OperatingError(kind, what + ": " + std::strerror(error));
}

class RealClock {
 public:
  explicit RealClock(std::int64_t slowdown) : slowdown_(slowdown) {}
  [[nodiscard]] Nanos now() const {
    using std::chrono::nanoseconds;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Nanos{std::chrono::duration_cast<nanoseconds>(since).count() / slowdown_};
  }

 private:
  std::int64_t slowdown_;
};

// One transfer at a time, done when submit() returns.
class SyncChannel final : public AtOnceChannel {
 public:
  SyncChannel(int fd, RealClock clock, const Cancel& cancel)
      : fd_(fd), clock_(clock), cancel_(cancel) {}

  void submit(const Transfer& t) override {
    cancel_.check();
    std::size_t moved = 0;
    while (moved < t.buffer.size()) {
      const off_t offset = t.offset.count() + static_cast<off_t>(moved);
      std::byte* data = t.buffer.data() + moved;
      const std::size_t left = t.buffer.size() - moved;
      const ssize_t n =
          t.op == Op::write ? ::pwrite(fd_, data, left, offset) : ::pread(fd_, data, left, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno(errno, t.op == Op::write ? "write" : "read");
      if (n == 0) throw_errno(t.op == Op::write ? ENOSPC : EIO, "transfer ended early");
      moved += static_cast<std::size_t>(n);
    }
    done(t.tag);
  }

  void drain() noexcept override {}
  Nanos now() override { return clock_.now(); }

 private:
  int fd_;
  RealClock clock_;
  const Cancel& cancel_;
};

#ifdef FLASHLAB_HAVE_LIBURING

class UringChannel final : public Channel {
 public:
  UringChannel(int fd, std::uint32_t depth, RealClock clock, const Cancel& cancel)
      : fd_(fd), clock_(clock), cancel_(cancel), transfers_(depth) {
    const int error = io_uring_queue_init(depth, &ring_, 0);
    if (error < 0) throw_errno(-error, "io_uring is not available");
  }

  ~UringChannel() override { io_uring_queue_exit(&ring_); }
  UringChannel(const UringChannel&) = delete;
  UringChannel& operator=(const UringChannel&) = delete;

  // Registered memory is pinned once, not for every transfer. It counts against RLIMIT_MEMLOCK:
  // where that is too low, transfers work all the same.
  void announce(std::span<std::byte> memory) override {
    const iovec whole{memory.data(), memory.size()};
    if (io_uring_register_buffers(&ring_, &whole, 1) == 0) registered_ = memory;
  }

  void submit(const Transfer& t) override {
    cancel_.check();
    FLASHLAB_CHECK(t.tag < transfers_.size());
    transfers_[t.tag] = t;
    start(t);
  }

  Tag wait() override {
    while (true) {
      io_uring_cqe* cqe = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == -EINTR) continue;
      if (error < 0) throw_errno(-error, "io_uring");
      const auto tag = static_cast<Tag>(io_uring_cqe_get_data64(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
      if (finish(transfers_[tag], result)) return tag;
    }
  }

  void drain() noexcept override {
    while (in_flight_ > 0) {
      io_uring_cqe* cqe = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == -EINTR) continue;
      if (error < 0) std::terminate();  // the kernel may still write to memory that we would free
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
    }
  }

  Nanos now() override { return clock_.now(); }
  void compute(Nanos /*cpu*/) override {}

 private:
  void start(const Transfer& t) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    FLASHLAB_CHECK(sqe != nullptr);
    const auto size = static_cast<unsigned>(t.buffer.size());
    const auto offset = static_cast<std::uint64_t>(t.offset.count());
    std::byte* data = t.buffer.data();
    const bool fixed = data >= registered_.data() &&
                       data + t.buffer.size() <= registered_.data() + registered_.size();
    if (t.op == Op::write) {
      fixed ? io_uring_prep_write_fixed(sqe, fd_, data, size, offset, 0)
            : io_uring_prep_write(sqe, fd_, data, size, offset);
    } else {
      fixed ? io_uring_prep_read_fixed(sqe, fd_, data, size, offset, 0)
            : io_uring_prep_read(sqe, fd_, data, size, offset);
    }
    io_uring_sqe_set_data64(sqe, t.tag);
    const int submitted = io_uring_submit(&ring_);
    if (submitted < 0) throw_errno(-submitted, "io_uring submit");
    ++in_flight_;
  }

  // Whether the transfer is whole; a short one goes on where it stopped.
  bool finish(Transfer& t, int result) {
    const char* what = t.op == Op::write ? "write" : "read";
    if (result == -EINTR || result == -EAGAIN)
      result = 0;
    else if (result < 0)
      throw_errno(-result, what);
    else if (result == 0)
      throw_errno(t.op == Op::write ? ENOSPC : EIO, "transfer ended early");
    const auto moved = static_cast<std::size_t>(result);
    if (moved == t.buffer.size()) return true;
    t.offset += Bytes{static_cast<std::int64_t>(moved)};
    t.buffer = t.buffer.subspan(moved);
    start(t);
    return false;
  }

  int fd_;
  RealClock clock_;
  const Cancel& cancel_;
  io_uring ring_{};
  std::span<std::byte> registered_;
  std::uint32_t in_flight_ = 0;
  std::vector<Transfer> transfers_;  // by tag
};

#endif

std::unique_ptr<Channel> make_channel(int fd, std::uint32_t depth, RealClock clock,
                                      const Cancel& cancel) {
#ifdef FLASHLAB_HAVE_LIBURING
  if (FileStorage::has_io_uring()) return std::make_unique<UringChannel>(fd, depth, clock, cancel);
#endif
  if (depth == 1) return std::make_unique<SyncChannel>(fd, clock, cancel);
  throw OperatingError(ErrorKind::bad_parameter,
                       "queue_depth above 1 needs io_uring, which this kernel or this build does "
                       "not have: use queue_depth 1, or install liburing-dev and build again");
}

Bytes direct_block(int fd, const struct stat& info) {
  int sector = 0;
  if (S_ISBLK(info.st_mode) && ioctl(fd, BLKSSZGET, &sector) == 0) return Bytes{sector};
  return Bytes{4096};
}

Bytes size_of(int fd, const struct stat& info) {
  std::uint64_t size = 0;
  if (S_ISBLK(info.st_mode)) {
    if (ioctl(fd, BLKGETSIZE64, &size) != 0) throw_errno(errno, "size of the device");
    return Bytes{static_cast<std::int64_t>(size)};
  }
  return Bytes{info.st_size};
}

}  // namespace

bool FileStorage::has_io_uring() {
#ifdef FLASHLAB_HAVE_LIBURING
  io_uring ring{};
  if (io_uring_queue_init(1, &ring, 0) < 0) return false;
  io_uring_queue_exit(&ring);
  return true;
#else
  return false;
#endif
}

FileStorage::FileStorage(const std::string& path, std::int64_t slowdown)
    : path_(path), slowdown_(slowdown) {
  require(slowdown >= 1, "slowdown: must be at least 1");
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    throw OperatingError(ErrorKind::target, path + ": " + std::strerror(errno));
  }
  const int exclusive = S_ISBLK(info.st_mode) ? O_EXCL : 0;
  fd_ = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC | exclusive);
  if (fd_ < 0) {
    const int error = errno;
    const char* hint = error == EINVAL ? " (its file system does not support O_DIRECT)" : "";
    throw OperatingError(ErrorKind::target, path + ": " + std::strerror(error) + hint);
  }
  try {
    block_ = direct_block(fd_, info);
    capacity_ = size_of(fd_, info);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FileStorage::~FileStorage() { close(); }

void FileStorage::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void FileStorage::run(std::uint32_t users, std::uint32_t depth, const Body& body,
                      const Cancel& cancel) {
  Cancel stop(&cancel);  // one user's error ends the others
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::uint32_t user = 0; user < users; ++user) {
    threads.emplace_back([&, user] {
      try {
        const auto channel = make_channel(fd_, depth, RealClock(slowdown_), stop);
        body(user, *channel);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        stop.raise();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

void FileStorage::write(Bytes offset, std::span<const std::byte> data) {
  // O_DIRECT wants aligned memory: through a bounce buffer.
  constexpr std::size_t kChunk = 1 << 20;
  const std::unique_ptr<void, void (*)(void*)> bounce(std::aligned_alloc(4096, kChunk), std::free);
  FLASHLAB_CHECK(data.size() % static_cast<std::size_t>(block_.count()) == 0);
  const Cancel never;
  SyncChannel channel(fd_, RealClock(slowdown_), never);
  for (std::size_t at = 0; at < data.size(); at += kChunk) {
    const std::size_t n = std::min(kChunk, data.size() - at);
    std::memcpy(bounce.get(), data.data() + at, n);
    channel.submit({Op::write,
                    offset + Bytes{static_cast<std::int64_t>(at)},
                    {static_cast<std::byte*>(bounce.get()), n},
                    0});
    (void)channel.wait();
  }
}

void FileStorage::sync() {
  if (::fsync(fd_) != 0) throw_errno(errno, "fsync of " + path_);
}

}  // namespace flashlab::io
