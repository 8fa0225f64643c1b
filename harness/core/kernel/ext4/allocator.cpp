#include "kernel/ext4/allocator.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace flashlab::kernel::ext4 {

namespace {

constexpr std::int64_t kStreamRequest = 16;  // s_mb_stream_request: files up to here are small
constexpr std::int64_t kSharedPiece = 512;   // s_mb_group_prealloc
constexpr std::uint32_t kLeastFound = 10;    // s_mb_min_to_scan
constexpr std::uint32_t kMostFound = 200;    // s_mb_max_to_scan
constexpr int kLeastOrder = 2;               // s_mb_order2_reqs
constexpr int kMostTrimmed = 3;              // s_mb_best_avail_max_trim_order
constexpr std::int64_t kLeastSorted = 16;    // MB_DEFAULT_LINEAR_SCAN_THRESHOLD
constexpr std::int64_t kMiB = 256;           // in blocks

struct Window {
  std::int64_t begin = 0;
  std::int64_t blocks = 0;
};

// ext4_mb_normalize_request: what is looked for when [logical, logical + blocks) is asked for. The
// preprocessor's NRL_CHECK_SIZE lets its last case hold always.
Window normalised(std::int64_t logical, std::int64_t blocks, std::int64_t size) {
  const std::int64_t whole = std::max(size, logical + blocks);
  if (whole <= kMiB) {
    const auto least = std::max<std::int64_t>(whole, 4);
    return {0, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)))};
  }
  const std::int64_t window = whole <= 4 * kMiB   ? 2 * kMiB
                              : whole <= 8 * kMiB ? 4 * kMiB
                                                  : 8 * kMiB;
  return {logical / window * window, window};
}

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }

int order_of(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
}

// mb_avg_fragment_size_order.
int length_class(std::int64_t blocks) {
  return std::clamp(order_of(blocks) - 1, 0, Groups::kOrders - 1);
}

}  // namespace

Allocator::Allocator(Groups& groups, const AllocatorRules& rules)
    : groups_(groups),
      rules_(rules),
      sorted_(rules.recent && groups.count() >= kLeastSorted),
      stream_goal_(std::max<std::uint32_t>(rules.stream_goals, 1)) {
  if (rules_.small_files < 0) {
    rules_.small_files = groups.count() / rules_.flex_groups / 2 * rules_.flex_groups + 1;
  }
  rules_.small_files = std::min(rules_.small_files, groups.count() - 1);
}

std::int64_t Allocator::shared_blocks() const {
  std::int64_t sum = 0;
  for (const Run& run : shared_) sum += run.blocks;
  return sum;
}

void Allocator::drop_shared() {
  for (const Run& run : shared_) {
    if (run.blocks > 0) groups_.give_back(run);
  }
  shared_.clear();
}

std::optional<Run> Allocator::allocate(std::uint64_t file, std::int64_t logical,
                                       std::int64_t blocks, std::int64_t size,
                                       const std::optional<Tail>& tail,
                                       std::optional<Preallocation>& kept) {
  FLASHLAB_CHECK(!kept || kept->logical == logical);
  if (kept) return use(kept, blocks);
  if (std::max(size, logical + blocks) <= kStreamRequest) return small(blocks);
  Window window = normalised(logical, blocks, size);
  std::optional<BlockNumber> goal;
  if (tail && tail->logical >= window.begin) {
    window.blocks -= tail->logical - window.begin;
    window.begin = tail->logical;
  }
  if (tail && tail->logical == window.begin) goal = tail->block;
  FLASHLAB_CHECK(window.begin <= logical && logical < window.begin + window.blocks);
  const std::optional<Run> run = find(file, window.blocks, blocks, goal, true);
  if (!run) return run;
  // Less than was looked for begins at what is needed.
  if (run->blocks < window.blocks) window = {logical, run->blocks};
  const std::int64_t before = logical - window.begin;
  if (before > 0) groups_.give_back({run->begin, before});
  const Run used{run->begin + before, std::min(blocks, run->blocks - before)};
  if (used.end() < run->end()) {
    kept = Preallocation{logical + used.blocks, {used.end(), run->end() - used.end()}};
  }
  return used;
}

Run Allocator::use(std::optional<Preallocation>& kept, std::int64_t blocks) {
  const Run used{kept->run.begin, std::min(blocks, kept->run.blocks)};
  kept->logical += used.blocks;
  kept->run = {used.end(), kept->run.blocks - used.blocks};
  if (kept->run.blocks == 0) kept.reset();
  return used;
}

// EXT4_MB_HINT_NOPREALLOC: the place behind the file's last block is not tried.
std::optional<Run> Allocator::allocate_closed(std::int64_t blocks, std::int64_t size,
                                              const std::optional<Tail>& tail,
                                              std::optional<Preallocation>& kept) {
  if (kept) return use(kept, blocks);
  if (rules_.recent && size <= kStreamRequest) return small(blocks);
  const GroupNumber near = tail ? groups_.group_of(tail->block - 1) : rules_.small_files;
  const std::int64_t wanted = std::min(blocks, groups_.blocks_per_group());
  return search(wanted, wanted, near);
}

std::optional<Run> Allocator::allocate_plain(std::uint64_t file, std::int64_t blocks,
                                             const std::optional<Tail>& tail) {
  const std::optional<BlockNumber> goal =
      tail ? std::optional<BlockNumber>(tail->block) : std::nullopt;
  const std::int64_t wanted = std::min(blocks, groups_.blocks_per_group());
  return find(file, wanted, wanted, goal, blocks > kStreamRequest);
}

std::optional<Run> Allocator::small(std::int64_t blocks) {
  auto piece = std::find_if(shared_.begin(), shared_.end(),
                            [&](const Run& run) { return run.blocks >= blocks; });
  if (piece == shared_.end()) {
    const std::optional<Run> run = search(kSharedPiece, blocks, rules_.small_files);
    if (!run) return run;
    shared_.push_back(*run);
    piece = std::prev(shared_.end());
  }
  const Run used{piece->begin, std::min(blocks, piece->blocks)};
  *piece = {used.end(), piece->blocks - used.blocks};
  if (piece->blocks == 0) shared_.erase(piece);
  return used;
}

std::optional<Run> Allocator::find(std::uint64_t file, std::int64_t blocks, std::int64_t asked,
                                   const std::optional<BlockNumber>& goal, bool stream) {
  if (goal && groups_.group_of(*goal) < groups_.count() &&
      groups_.free_from(*goal, blocks) == blocks) {
    ++counters_.at_goal;
    const Run run{*goal, blocks};
    groups_.take(run);
    if (stream) goal_of(file) = groups_.group_of(run.begin);
    return run;
  }
  const GroupNumber from = stream ? goal_of(file) : rules_.small_files;
  const std::optional<Run> run = search(blocks, asked, from);
  if (run && stream) goal_of(file) = groups_.group_of(run->begin);
  return run;
}

// ext4_mb_regular_allocator. `asked`: of what is looked for, what is needed at once.
std::optional<Run> Allocator::search(std::int64_t blocks, std::int64_t asked, GroupNumber from) {
  ++counters_.requests;
  Search search{blocks, from, 0, std::nullopt, false};
  if (is_power_of_two(blocks) && order_of(blocks) >= kLeastOrder) search_aligned(search);
  if (!search.done) search_long(search);
  if (!search.done && sorted_) search_shorter(search, asked);
  for (const std::int64_t least : {blocks, std::int64_t{1}}) {
    for (std::int64_t i = 0; i < groups_.count() && !search.done; ++i) {
      const GroupNumber group = (from + i) % groups_.count();
      if (groups_.free_in(group) >= least) search_runs(search, group, false);
    }
  }
  if (!search.best) return std::nullopt;
  const Run run{search.best->begin, std::min(search.best->blocks, search.wanted)};
  if (run.blocks < blocks) ++counters_.shortened;
  groups_.take(run);
  return run;
}

// The first group that will do, from `begin` to `end`; where they are sorted, of the lowest class,
// of which `lowest` is the least.
template <class WillDo, class Class>
std::optional<GroupNumber> Allocator::first(GroupNumber begin, GroupNumber end, int lowest,
                                            const WillDo& will_do, const Class& class_of) const {
  std::optional<GroupNumber> first;
  int best = 0;
  for (GroupNumber group = begin; group < end; ++group) {
    if (!will_do(group)) continue;
    if (!sorted_) return group;
    const int found = class_of(group);
    if (first && found >= best) continue;
    first = group;
    best = found;
    if (best <= lowest) break;
  }
  return first;
}

// ext4_mb_simple_scan_group: in a group with a chunk of that order, the lowest of the smallest that
// will do. Groups are sorted by their largest chunk.
void Allocator::search_aligned(Search& search) const {
  const int order = order_of(search.wanted);
  const auto will_do = [&](GroupNumber group) {
    return group % rules_.flex_groups != 0 && groups_.largest_order(group) >= order;
  };
  const auto class_of = [&](GroupNumber group) { return groups_.largest_order(group); };
  std::optional<GroupNumber> group = first(search.from, groups_.count(), order, will_do, class_of);
  if (!group) group = first(0, search.from, order, will_do, class_of);
  if (!group) return;
  search.best = lowest_chunk(*group, order);
  search.done = true;
}

Run Allocator::lowest_chunk(GroupNumber group, int order) const {
  const BlockNumber base = group * groups_.blocks_per_group();
  Run best;
  int best_order = Groups::kOrders;
  for (const Run& run : groups_.runs(group)) {
    if (run.blocks < std::int64_t{1} << order) continue;
    for (Run rest = run; rest.blocks > 0 && best_order > order;) {
      const int chunk = chunk_order(rest.begin, rest.blocks, base);
      const std::int64_t length = std::int64_t{1} << chunk;
      if (chunk >= order && chunk < best_order) {
        best_order = chunk;
        best = Run{rest.begin, length};
      }
      rest = {rest.begin + length, rest.blocks - length};
    }
    if (best_order == order) break;
  }
  FLASHLAB_CHECK(best_order < Groups::kOrders);
  return best;
}

// Groups whose free runs are long enough on average; sorted by that average.
void Allocator::search_long(Search& search) const {
  const auto will_do = [&](GroupNumber group) { return mean_run(group) >= search.wanted; };
  const auto class_of = [&](GroupNumber group) { return length_class(mean_run(group)); };
  const int lowest = length_class(search.wanted);
  std::optional<GroupNumber> group = first(search.from, groups_.count(), lowest, will_do, class_of);
  if (!group) group = first(0, search.from, lowest, will_do, class_of);
  if (group) search_runs(search, *group, rules_.recent);
}

// ext4_mb_scan_groups_best_avail: up to 2^3 times less than what is looked for, if that is still as
// much as is asked for, from groups whose free runs are about that long.
void Allocator::search_shorter(Search& search, std::int64_t asked) const {
  const std::int64_t blocks = search.wanted;
  const int highest = order_of(blocks);
  int lowest = std::max(highest - kMostTrimmed, 0);
  if (std::int64_t{1} << lowest < asked) lowest = order_of(asked) + 1;
  for (const Run& range : {Run{search.from, groups_.count() - search.from}, Run{0, search.from}}) {
    for (int order = highest; order >= lowest; --order) {
      search.wanted = std::int64_t{1} << order;
      const int wanted_class = length_class(search.wanted);
      const auto class_of = [&](GroupNumber group) { return length_class(mean_run(group)); };
      const auto will_do = [&](GroupNumber group) {
        return mean_run(group) >= search.wanted && class_of(group) == wanted_class;
      };
      const auto group = first(range.begin, range.end(), wanted_class, will_do, class_of);
      if (!group) continue;
      search_runs(search, *group, true);
      FLASHLAB_CHECK(search.done);
      return;
    }
  }
  search.wanted = blocks;
}

std::int64_t Allocator::mean_run(GroupNumber group) const {
  const auto runs = static_cast<std::int64_t>(groups_.runs(group).size());
  return runs == 0 ? 0 : groups_.free_in(group) / runs;
}

// ext4_mb_complex_scan_group. `long_enough`: shorter runs are not looked at.
void Allocator::search_runs(Search& search, GroupNumber group, bool long_enough) const {
  const BlockNumber base = group * groups_.blocks_per_group();
  for (const Run& run : groups_.runs(group)) {
    for (Run rest = run; rest.blocks > 0 && !search.done;) {
      if (long_enough && rest.blocks < search.wanted) break;
      // mb_find_extent: whole chunks until there is enough.
      std::int64_t length = std::int64_t{1} << chunk_order(rest.begin, rest.blocks, base);
      while (length < search.wanted && length < rest.blocks) {
        length += std::int64_t{1} << chunk_order(rest.begin + length, rest.blocks - length, base);
      }
      measure(search, {rest.begin, length});
      rest = {rest.begin + length, rest.blocks - length};
    }
    if (search.done) return;
  }
  check_limits(search, true);
}

// ext4_mb_measure_extent.
void Allocator::measure(Search& search, const Run& run) const {
  ++search.found;
  if (run.blocks == search.wanted) {
    search.best = run;
    search.done = true;
    return;
  }
  const bool enough = search.best && search.best->blocks >= search.wanted;
  if (!search.best || (!enough && run.blocks > search.best->blocks) ||
      (enough && run.blocks > search.wanted && run.blocks < search.best->blocks)) {
    search.best = run;
  }
  check_limits(search, false);
}

void Allocator::check_limits(Search& search, bool whole_group) const {
  if (search.done || !search.best) return;
  if (search.found > kMostFound) {
    search.done = true;
  } else if (search.best->blocks >= search.wanted) {
    search.done = whole_group || search.found > kLeastFound;
  }
}

}  // namespace flashlab::kernel::ext4
