#include "live/fuse_file.hpp"

#include "base/check.hpp"

#ifdef FLASHLAB_HAVE_FUSE

#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "live/priority.hpp"

namespace flashlab::live {

namespace {

constexpr double kForever = 1e9;
constexpr unsigned kMostInBackground = 1024;

LiveDevice& device_of(fuse_req_t request) {
  return *static_cast<LiveDevice*>(fuse_req_userdata(request));
}

// A waiting kernel request. Reads carry their data.
class FuseTicket final : public Ticket {
 public:
  FuseTicket(fuse_req_t request, Op op, std::size_t length)
      : request_(request), op_(op), length_(length) {
    if (op == Op::read) data_.reset(new std::byte[length]);
  }

  [[nodiscard]] std::span<std::byte> data() { return {data_.get(), length_}; }

  void reply(int error) override {
    if (error != 0) {
      fuse_reply_err(request_, error);
    } else if (op_ == Op::read) {
      fuse_reply_buf(request_, reinterpret_cast<const char*>(data_.get()), length_);
    } else if (op_ == Op::write) {
      fuse_reply_write(request_, length_);
    } else {
      fuse_reply_err(request_, 0);
    }
  }

 private:
  fuse_req_t request_;
  Op op_;
  std::size_t length_;
  std::unique_ptr<std::byte[]> data_;
};

bool fits(const LiveDevice& device, off_t offset, std::size_t length) {
  return offset >= 0 && length > 0 && offset % kSectorBytes == 0 &&
         length % static_cast<std::size_t>(kSectorBytes) == 0 &&
         offset + static_cast<off_t>(length) <= device.visible().count();
}

void on_init(void* /*device*/, fuse_conn_info* connection) {
  connection->want &=
      ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  connection->max_background = kMostInBackground;
  connection->congestion_threshold = kMostInBackground;
  connection->max_readahead = 0;
}

void on_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info* /*file*/) {
  struct stat attributes{};
  attributes.st_ino = inode;
  attributes.st_mode = S_IFREG | 0600;
  attributes.st_nlink = 1;
  attributes.st_size = device_of(request).visible().count();
  attributes.st_blksize = 4096;
  fuse_reply_attr(request, &attributes, kForever);
}

// Opening a block device's backing file may truncate nothing and change no times.
void on_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* /*attributes*/, int to_set,
                fuse_file_info* file) {
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) {
    fuse_reply_err(request, EPERM);
    return;
  }
  on_getattr(request, inode, file);
}

void on_open(fuse_req_t request, fuse_ino_t /*inode*/, fuse_file_info* file) {
  file->direct_io = 1;
  fuse_reply_open(request, file);
}

void on_read(fuse_req_t request, fuse_ino_t /*inode*/, std::size_t length, off_t offset,
             fuse_file_info* /*file*/) {
  LiveDevice& device = device_of(request);
  if (!fits(device, offset, length)) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  auto ticket = std::make_unique<FuseTicket>(request, Op::read, length);
  const std::span<std::byte> into = ticket->data();
  device.read(Bytes{offset}, into, std::move(ticket));
}

void on_write(fuse_req_t request, fuse_ino_t /*inode*/, const char* data, std::size_t length,
              off_t offset, fuse_file_info* /*file*/) {
  LiveDevice& device = device_of(request);
  if (!fits(device, offset, length)) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  device.write(Bytes{offset}, std::as_bytes(std::span(data, length)),
               std::make_unique<FuseTicket>(request, Op::write, length));
}

void on_fsync(fuse_req_t request, fuse_ino_t /*inode*/, int /*data_only*/,
              fuse_file_info* /*file*/) {
  device_of(request).flush(std::make_unique<FuseTicket>(request, Op::flush, 0));
}

void on_fallocate(fuse_req_t request, fuse_ino_t /*inode*/, int mode, off_t offset, off_t length,
                  fuse_file_info* /*file*/) {
  LiveDevice& device = device_of(request);
  if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return;
  }
  if (length <= 0 || !fits(device, offset, static_cast<std::size_t>(length))) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  device.trim({to_lba(Bytes{offset}), to_lba(Bytes{offset + length})},
              std::make_unique<FuseTicket>(request, Op::trim, 0));
}

// The loop device takes its discard granularity from here.
void on_statfs(fuse_req_t request, fuse_ino_t /*inode*/) {
  struct statvfs facts{};
  facts.f_bsize = 4096;
  facts.f_frsize = 4096;
  facts.f_blocks = static_cast<fsblkcnt_t>(device_of(request).visible().count() / 4096);
  fuse_reply_statfs(request, &facts);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops ops{};
  ops.init = on_init;
  ops.getattr = on_getattr;
  ops.setattr = on_setattr;
  ops.open = on_open;
  ops.read = on_read;
  ops.write = on_write;
  ops.fsync = on_fsync;
  ops.fallocate = on_fallocate;
  ops.statfs = on_statfs;
  return ops;
}

}  // namespace

class FuseFile::Session {
 public:
  Session(LiveDevice& device, const std::string& path, const std::string& source,
          std::uint32_t threads)
      : serving_(threads) {
    const std::string options = "-ofsname=" + source + ",subtype=flashlab";
    const char* arguments[] = {"flashlab", options.c_str()};
    fuse_args args = FUSE_ARGS_INIT(2, const_cast<char**>(arguments));
    const fuse_lowlevel_ops ops = operations();
    session_ = fuse_session_new(&args, &ops, sizeof(ops), &device);
    fuse_opt_free_args(&args);
    if (session_ == nullptr) fail("libfuse refuses the session");
    if (fuse_session_mount(session_, path.c_str()) != 0) {
      fuse_session_destroy(session_);
      fail("cannot mount at " + path + ": FUSE needs root and /dev/fuse");
    }
    let_threads_be_woken();
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }

  // The threads end first: with the descriptor that they wait on ends the connection, even if a
  // mount namespace of somebody else's keeps the mount.
  ~Session() {
    fuse_session_exit(session_);
    while (serving_ > 0) {
      for (std::thread& thread : threads_) ::pthread_kill(thread.native_handle(), kWake);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (std::thread& thread : threads_) thread.join();
    fuse_session_unmount(session_);
    fuse_session_destroy(session_);
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  [[noreturn]] static void fail(const std::string& what) {
    throw OperatingError(ErrorKind::target, what);
  }

  // A signal that does nothing but interrupt a read.
  static void let_threads_be_woken() {
    struct sigaction nothing{};
    nothing.sa_handler = [](int) {};
    ::sigaction(kWake, &nothing, nullptr);
  }

  void serve() {
    run_promptly();
    fuse_buf buffer{};
    while (fuse_session_exited(session_) == 0) {
      const int size = fuse_session_receive_buf(session_, &buffer);
      if (size == -EINTR) continue;
      if (size <= 0) break;  // unmounted
      fuse_session_process_buf(session_, &buffer);
    }
    std::free(buffer.mem);
    --serving_;
  }

  static constexpr int kWake = SIGURG;  // ignored by default: nobody else is disturbed

  fuse_session* session_ = nullptr;
  std::atomic<std::uint32_t> serving_;
  std::vector<std::thread> threads_;
};

FuseFile::FuseFile(LiveDevice& device, const std::string& path, const std::string& source,
                   std::uint32_t threads)
    : session_(std::make_unique<Session>(device, path, source, threads)) {}

bool FuseFile::available() { return true; }

}  // namespace flashlab::live

#else

namespace flashlab::live {

class FuseFile::Session {};

FuseFile::FuseFile(LiveDevice& /*device*/, const std::string& /*path*/,
                   const std::string& /*source*/, std::uint32_t /*threads*/) {
  throw OperatingError(ErrorKind::target,
                       "the core was built without libfuse: install libfuse3-dev, then make env");
}

bool FuseFile::available() { return false; }

}  // namespace flashlab::live

#endif

namespace flashlab::live {

FuseFile::~FuseFile() = default;

}  // namespace flashlab::live
