// Storage on a real file or block device, past the page cache (O_DIRECT).
//
// Transfers go through io_uring at the queue depth that the users ask for. Where the kernel has no
// io_uring or this build no liburing, depth 1 works all the same, with pread and pwrite.
#pragma once

#include <string>

#include "io/storage.hpp"

namespace flashlab::io {

class FileStorage final : public Storage {
 public:
  // Opens an existing file or block device for reading and writing; a block device exclusively.
  // Throws OperatingError (target) if that cannot be done.
  // Below it time may run `slowdown` times slower than the clock: the times that users see are
  // scaled back.
  explicit FileStorage(const std::string& path, std::int64_t slowdown = 1);
  ~FileStorage() override;
  FileStorage(const FileStorage&) = delete;
  FileStorage& operator=(const FileStorage&) = delete;

  [[nodiscard]] Bytes capacity() const override { return capacity_; }
  [[nodiscard]] Bytes block() const override { return block_; }
  void run(std::uint32_t users, std::uint32_t depth, const Body& body,
           const Cancel& cancel) override;
  // Writes outside an experiment (inputs, markers), synchronously.
  void write(Bytes offset, std::span<const std::byte> data);
  void sync();
  // Lets the file go; nothing else may be called any more.
  void close();

  [[nodiscard]] static bool has_io_uring();

 private:
  std::string path_;
  std::int64_t slowdown_;
  int fd_ = -1;
  Bytes capacity_;
  Bytes block_;
};

}  // namespace flashlab::io
