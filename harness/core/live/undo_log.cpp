#include "live/undo_log.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::live {

namespace {

constexpr Bytes kBlock{UndoLog::kBlockSectors * kSectorBytes};

}  // namespace

int UndoLog::save(const Extent& extent, const Store& store) {
  const std::int64_t first = extent.begin.index() / kBlockSectors;
  const std::int64_t last = ceil_div(extent.end.index(), kBlockSectors);
  Epoch& open = epochs_.back();
  for (Block block = first; block < last; ++block) {
    const auto [at, is_new] = open.try_emplace(block);
    if (!is_new) continue;
    at->second.resize(static_cast<std::size_t>(kBlock.count()));
    ++blocks_;
    if (const int error = store.read(kBlock * block, at->second); error != 0) {
      open.erase(at);  // nobody knows what to put back
      --blocks_;
      return error;
    }
  }
  return 0;
}

std::uint64_t UndoLog::begin_flush() {
  if (!epochs_.back().empty()) epochs_.emplace_back(&pool_);
  return first_ + epochs_.size() - 1;
}

void UndoLog::end_flush(std::uint64_t flush) {
  for (; first_ < flush; ++first_) {
    blocks_ -= epochs_.front().size();
    epochs_.pop_front();
  }
}

void UndoLog::end_write(const Extent& extent, std::uint64_t flush) {
  const std::int64_t first = extent.begin.index() / kBlockSectors;
  const std::int64_t last = ceil_div(extent.end.index(), kBlockSectors);
  for (std::uint64_t number = first_; number < flush; ++number) {
    Epoch& epoch = epochs_[number - first_];
    for (Block block = first; block < last; ++block) blocks_ -= epoch.erase(block);
  }
}

void UndoLog::keep_only(std::span<const Extent> in_doubt) {
  const auto doubtful = [&](Block block) {
    const Extent extent{Lba{block * kBlockSectors}, Lba{(block + 1) * kBlockSectors}};
    const auto at = std::ranges::upper_bound(in_doubt, extent.begin, {}, &Extent::end);
    return at != in_doubt.end() && at->begin < extent.end;
  };
  for (Epoch& epoch : epochs_) {
    blocks_ -= std::erase_if(epoch, [&](const auto& entry) { return !doubtful(entry.first); });
  }
  // A drive with much in doubt is not asked again for every write.
  limit_ = std::max(kMostBlocks, 2 * blocks_);
}

std::int64_t UndoLog::revert(std::span<const Extent> in_doubt, Prng& random, Store& store) {
  std::int64_t changed = 0;
  for (const Extent& extent : in_doubt) {
    const std::int64_t last = ceil_div(extent.end.index(), kBlockSectors);
    for (Block block = extent.begin.index() / kBlockSectors; block < last; ++block) {
      const std::vector<const Content*> earlier = versions(block);
      const std::uint64_t choice = random.below(earlier.size() + 1);
      if (choice == earlier.size()) continue;
      const Lba begin = std::max(extent.begin, Lba{block * kBlockSectors});
      const Lba end = std::min(extent.end, Lba{(block + 1) * kBlockSectors});
      const Bytes skip = to_bytes(begin) - kBlock * block;
      const auto part = std::span(*earlier[choice])
                            .subspan(static_cast<std::size_t>(skip.count()),
                                     static_cast<std::size_t>(to_bytes(end - begin).count()));
      if (store.write(to_bytes(begin), part) != 0) return -1;
      changed += (end - begin).count();
    }
  }
  clear();
  return changed;
}

std::vector<const UndoLog::Content*> UndoLog::versions(Block block) const {
  std::vector<const Content*> found;
  for (const Epoch& epoch : epochs_) {
    const auto at = epoch.find(block);
    if (at != epoch.end()) found.push_back(&at->second);
  }
  return found;
}

void UndoLog::clear() {
  first_ += epochs_.size() - 1;
  epochs_.erase(epochs_.begin(), epochs_.end() - 1);
  epochs_.front().clear();
  blocks_ = 0;
}

}  // namespace flashlab::live
