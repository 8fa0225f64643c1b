#include "dbms/tape.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace flashlab::dbms {

TapeFile::TapeFile(kernel::PageCache& cache, host::Process owner, const TapeParameters& parameters)
    : cache_(cache), owner_(owner), parameters_(parameters), file_(cache.create()) {
  require(parameters.payload > Bytes{0} && parameters.payload <= parameters.block,
          "tapes, payload: must lie between 1 and the block");
  require(parameters.piece >= 1, "tapes, piece: must be at least 1 block");
}

TapeFile::~TapeFile() { cache_.remove(file_); }

BlockRun TapeFile::take(std::int64_t blocks) {
  std::vector<BlockRun> too_small;
  BlockRun run{end_, blocks};
  while (!free_.empty()) {
    BlockRun lowest = free_.top();
    free_.pop();
    while (!free_.empty() && free_.top().begin == lowest.begin + lowest.blocks) {
      lowest.blocks += free_.top().blocks;
      free_.pop();
    }
    if (lowest.blocks < std::min(parameters_.piece, blocks)) {
      too_small.push_back(lowest);
      continue;
    }
    run = {lowest.begin, std::min(blocks, lowest.blocks)};
    if (lowest.blocks > run.blocks) {
      free_.push({lowest.begin + run.blocks, lowest.blocks - run.blocks});
    }
    break;
  }
  for (const BlockRun& small : too_small) free_.push(small);
  end_ = std::max(end_, run.begin + run.blocks);
  return run;
}

void TapeFile::write(const BlockRun& run) {
  // Nobody may leave a hole: what lies before is filled first.
  const std::int64_t begin = std::min(run.begin, high_);
  const std::int64_t end = run.begin + run.blocks;
  if (begin < run.begin) {
    cache_.write(owner_, file_, begin, run.begin - begin);
    written_ += run.begin - begin;
  }
  cache_.write(owner_, file_, run.begin, run.blocks);
  written_ += run.blocks;
  high_ = std::max(high_, end);
}

void TapeFile::read(const BlockRun& run) {
  cache_.read(owner_, file_, run.begin, run.blocks);
  read_ += run.blocks;
}

void TapeFile::will_need(const BlockRun& run) {
  cache_.will_need(owner_, file_, run.begin, run.blocks);
}

void Tape::append(std::int64_t bytes) {
  if (unread_.empty() && in_buffer_ == 0) readable_ = 0;  // written anew
  run_bytes_ += bytes;
  in_buffer_ += bytes;
  const std::int64_t payload = file_->parameters().payload.count();
  if (in_buffer_ >= payload) {
    put_blocks(in_buffer_ / payload);
    in_buffer_ %= payload;
  }
}

void Tape::end_run() { runs_.push_back(std::exchange(run_bytes_, 0)); }

void Tape::put_blocks(std::int64_t blocks) {
  const auto put = [&](const BlockRun& run) {
    file_->write(run);
    if (!unread_.empty() && unread_.back().begin + unread_.back().blocks == run.begin) {
      unread_.back().blocks += run.blocks;
    } else {
      unread_.push_back(run);
    }
    blocks -= run.blocks;
  };
  if (!file_->parameters().reserve) {
    while (blocks > 0) put(file_->take(blocks));
    return;
  }
  if (reserved_ < 0) reserved_ = file_->take(1).begin;
  while (blocks > 0) {
    // The block that is written was taken before, the last one taken is kept for later.
    BlockRun run = file_->take(blocks);
    const std::int64_t next = run.begin + run.blocks - 1;
    if (run.begin == reserved_ + 1) {
      put({reserved_, run.blocks});
    } else {
      put({reserved_, 1});
      if (run.blocks > 1) put({run.begin, run.blocks - 1});
    }
    reserved_ = next;
  }
}

// What is in the buffer gets its block, full or not: reading begins.
void Tape::flush() {
  if (in_buffer_ > 0) put_blocks(1);
  in_buffer_ = 0;
  if (reserved_ >= 0) file_->give_back({std::exchange(reserved_, -1), 1});
}

void Tape::read(std::int64_t bytes) {
  flush();
  const std::int64_t payload = file_->parameters().payload.count();
  std::int64_t blocks = bytes > readable_ ? ceil_div(bytes - readable_, payload) : 0;
  readable_ += blocks * payload - bytes;
  announced_ = std::max<std::int64_t>(announced_ - blocks, 0);
  while (blocks > 0 && !unread_.empty()) {
    BlockRun& front = unread_.front();
    const BlockRun run{front.begin, std::min(front.blocks, blocks)};
    file_->read(run);
    file_->give_back(run);
    front.begin += run.blocks;
    front.blocks -= run.blocks;
    if (front.blocks == 0) unread_.pop_front();
    blocks -= run.blocks;
  }
  if (!unread_.empty()) file_->expect(unread_.front());
}

void Tape::will_need(std::int64_t bytes) {
  flush();
  const std::int64_t payload = file_->parameters().payload.count();
  const std::int64_t wanted = ceil_div(std::max<std::int64_t>(bytes - readable_, 0), payload);
  std::int64_t skip = announced_;
  std::int64_t left = wanted - announced_;
  for (auto run = unread_.begin(); run != unread_.end() && left > 0; ++run) {
    const std::int64_t skipped = std::min(skip, run->blocks);
    skip -= skipped;
    const std::int64_t named = std::min(run->blocks - skipped, left);
    if (named == 0) continue;
    file_->will_need({run->begin + skipped, named});
    left -= named;
    announced_ += named;
  }
}

}  // namespace flashlab::dbms
