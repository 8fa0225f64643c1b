// Tapes of an external sort in one temporary file, as PostgreSQL's logical tapes: a tape is a
// stream of bytes in blocks that lie anywhere in the file; a block is free again as soon as it is
// read, and the lowest free one is taken first, so the file hardly grows while runs are merged.
#pragma once

#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

#include "kernel/page_cache.hpp"

namespace flashlab::dbms {

struct BlockRun {
  std::int64_t begin = 0;
  std::int64_t blocks = 0;
  bool operator>(const BlockRun& other) const { return begin > other.begin; }
};

// What each one is: dbms/describe.hpp.
struct TapeParameters {
  Bytes block;  // the page cache's
  Bytes payload;
  bool reserve = false;
  std::int64_t piece = 1;
};

class TapeFile {
 public:
  TapeFile(kernel::PageCache& cache, host::Process owner, const TapeParameters& parameters);
  ~TapeFile();
  TapeFile(const TapeFile&) = delete;
  TapeFile& operator=(const TapeFile&) = delete;

  // Of the lowest free blocks, or at the file's end: at least one, at most so many.
  BlockRun take(std::int64_t blocks);
  void give_back(const BlockRun& run) { free_.push(run); }
  void write(const BlockRun& run);
  void read(const BlockRun& run);
  void will_need(const BlockRun& run);
  void expect(const BlockRun& run) const { cache_.expect(file_, run.begin); }

  [[nodiscard]] const TapeParameters& parameters() const { return parameters_; }
  // The file's length: it never shrinks.
  [[nodiscard]] std::int64_t blocks() const { return high_; }
  [[nodiscard]] std::int64_t blocks_read() const { return read_; }
  [[nodiscard]] std::int64_t blocks_written() const { return written_; }

 private:
  using Lowest = std::priority_queue<BlockRun, std::vector<BlockRun>, std::greater<>>;
  kernel::PageCache& cache_;
  host::Process owner_;
  TapeParameters parameters_;
  kernel::FileId file_;
  Lowest free_;
  std::int64_t end_ = 0;   // blocks that were taken
  std::int64_t high_ = 0;  // blocks that were written
  std::int64_t read_ = 0;
  std::int64_t written_ = 0;
};

class Tape {
 public:
  explicit Tape(TapeFile& file) : file_(&file) {}

  void append(std::int64_t bytes);
  void end_run();
  // Bytes of the run in front, or 0 if there is none.
  [[nodiscard]] std::int64_t front_run() const { return runs_.empty() ? 0 : runs_.front(); }
  void drop_front_run() { runs_.pop_front(); }
  // Reads on. The blocks are free afterwards.
  void read(std::int64_t bytes);
  // Has the blocks of the next so many bytes read ahead; counts from what was asked for last.
  void will_need(std::int64_t bytes);

 private:
  void put_blocks(std::int64_t blocks);
  void flush();

  TapeFile* file_;
  std::deque<BlockRun> unread_;
  std::deque<std::int64_t> runs_;
  std::int64_t run_bytes_ = 0;  // of the run that is being written
  std::int64_t in_buffer_ = 0;  // bytes that wait for their block to be full
  std::int64_t readable_ = 0;   // bytes of the last block read that were not asked for yet
  std::int64_t reserved_ = -1;
  std::int64_t announced_ = 0;  // blocks in front of `unread_` that will_need() has named
};

}  // namespace flashlab::dbms
