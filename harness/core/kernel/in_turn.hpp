// A file system that gives out the device from its beginning to its end, a piece at a time, to
// whoever asks: enough where files are written once and few. Space of removed files is not used
// again.
#pragma once

#include <vector>

#include "kernel/file_system.hpp"

namespace flashlab::kernel {

class InTurn final : public FileSystem {
 public:
  struct Parameters {
    Bytes block;     // the page cache's
    Bytes piece;     // of space on the device, at a time
    Bytes begin;     // where it begins on the device
    Bytes capacity;  // of the device
  };
  explicit InTurn(const Parameters& parameters);

  void create(FileId file) override;
  void remove(FileId /*file*/) override {}
  [[nodiscard]] bool allocate(FileId file, std::int64_t begin, std::int64_t blocks,
                              std::int64_t length) override;
  [[nodiscard]] Place find(FileId file, std::int64_t begin, std::int64_t blocks) const override;

 private:
  Parameters parameters_;
  std::int64_t per_piece_;
  std::int64_t pieces_ = 0;                       // given out
  std::vector<std::vector<std::int64_t>> files_;  // of each piece of a file: which of the device's
};

}  // namespace flashlab::kernel
