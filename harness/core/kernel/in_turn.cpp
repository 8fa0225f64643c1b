#include "kernel/in_turn.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::kernel {

namespace {

constexpr std::int64_t kNowhere = -1;

std::size_t at(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

InTurn::InTurn(const Parameters& p) : parameters_(p), per_piece_(p.piece / p.block) {}

void InTurn::create(FileId file) {
  if (files_.size() <= file) files_.resize(file + 1);
  files_[file].clear();
}

bool InTurn::allocate(FileId id, std::int64_t begin, std::int64_t blocks, std::int64_t /*length*/) {
  std::vector<std::int64_t>& pieces = files_[id];
  const std::int64_t last = (begin + blocks - 1) / per_piece_;
  if (pieces.size() <= at(last)) pieces.resize(at(last + 1), kNowhere);
  for (std::int64_t piece = begin / per_piece_; piece <= last; ++piece) {
    if (pieces[at(piece)] != kNowhere) continue;
    if (parameters_.begin + parameters_.piece * (pieces_ + 1) > parameters_.capacity) {
      throw OperatingError(ErrorKind::disk_full, "the modelled device is too small for the files");
    }
    pieces[at(piece)] = pieces_++;
  }
  return true;
}

Place InTurn::find(FileId id, std::int64_t begin, std::int64_t blocks) const {
  const std::vector<std::int64_t>& pieces = files_[id];
  std::int64_t piece = begin / per_piece_;
  const std::int64_t first = pieces[at(piece)];
  std::int64_t together = std::min(blocks, per_piece_ - begin % per_piece_);
  while (together < blocks && at(piece + 1) < pieces.size() &&
         pieces[at(piece + 1)] == pieces[at(piece)] + 1) {
    ++piece;
    together += std::min(blocks - together, per_piece_);
  }
  const Bytes offset =
      parameters_.begin + parameters_.piece * first + parameters_.block * (begin % per_piece_);
  return {to_lba(offset), together};
}

}  // namespace flashlab::kernel
