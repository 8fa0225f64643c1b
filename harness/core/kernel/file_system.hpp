// A file system, as a page cache sees it: where on the device do a file's blocks lie?
#pragma once

#include <cstdint>
#include <functional>

#include "base/units.hpp"

namespace flashlab::kernel {

using FileId = std::uint32_t;

// Blocks that lie one after the other on the device.
struct Place {
  Lba lba;
  std::int64_t blocks = 0;
};

// Blocks are the page cache's. A removed file's name may be given to a new one.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual void create(FileId file) = 0;
  virtual void remove(FileId file) = 0;
  // A new file is open. Nobody has it open for writing any more (`clean`: nothing of it waits for a
  // place); somebody has again.
  virtual void close(FileId /*file*/, bool /*clean*/) {}
  virtual void open(FileId /*file*/) {}
  // A process has written into it; its times have changed.
  virtual void written(FileId /*file*/) {}
  // The blocks [begin, begin + blocks) are about to be written; the file is `length` blocks long by
  // now. Those that have no place yet get one; false: not all of them yet, try again when told to.
  // Throws OperatingError (disk_full).
  [[nodiscard]] virtual bool allocate(FileId file, std::int64_t begin, std::int64_t blocks,
                                      std::int64_t length) = 0;
  // Who writes back is told when there may be room for what had none.
  virtual void tell_of_room(std::function<void()> /*told*/) {}
  // Where a block lies that has a place, and how many lie behind it there, of at most `blocks`.
  [[nodiscard]] virtual Place find(FileId file, std::int64_t begin, std::int64_t blocks) const = 0;
};

}  // namespace flashlab::kernel
