#include "live/store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace flashlab::live {

Store::~Store() { ::close(fd_); }

int Store::read(Bytes offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t n = ::pread(fd_, into.data(), into.size(), offset.count());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) {  // past the end of what was ever written
      std::ranges::fill(into, std::byte{0});
      return 0;
    }
    into = into.subspan(static_cast<std::size_t>(n));
    offset += Bytes{n};
  }
  return 0;
}

int Store::write(Bytes offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), offset.count());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data = data.subspan(static_cast<std::size_t>(n));
    offset += Bytes{n};
  }
  return 0;
}

int Store::punch(Bytes offset, Bytes length) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  int result = 0;
  do {
    result = ::fallocate(fd_, mode, offset.count(), length.count());
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

int Store::sync() { return ::fdatasync(fd_) < 0 ? errno : 0; }

bool Store::holds_data(const Extent& extent) const {
  const off_t data = ::lseek(fd_, to_bytes(extent.begin).count(), SEEK_DATA);
  return data < 0 ? errno != ENXIO : data < to_bytes(extent.end).count();
}

std::vector<Extent> Store::written(const Extent& extent) const {
  std::vector<Extent> found;
  const std::int64_t end = to_bytes(extent.end).count();
  std::int64_t at = to_bytes(extent.begin).count();
  while (at < end) {
    const off_t data = ::lseek(fd_, at, SEEK_DATA);
    if (data < 0 || data >= end) break;
    const off_t hole = std::min<off_t>(std::max<off_t>(::lseek(fd_, data, SEEK_HOLE), data), end);
    if (hole <= data) break;
    const std::int64_t last = ceil_div(hole, kSectorBytes) * kSectorBytes;
    found.push_back({to_lba(Bytes{data}), to_lba(Bytes{std::min<std::int64_t>(last, end)})});
    at = last;
  }
  return found;
}

}  // namespace flashlab::live
