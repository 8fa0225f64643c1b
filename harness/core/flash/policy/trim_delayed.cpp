// A TRIM is acknowledged when it is noted, and applied when the drive is idle (the Delayed TRIM
// paper). What is pending, and what a later write saves from it, is the business of the C module in
// flash/trim; here is what its calls cost, and what they do to this drive.
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "flash/policy/trim.hpp"
#include "flash/trim/delayed_trim.h"

namespace flashlab::flash {

namespace {

constexpr Bytes kLargestBlock{4096};

class Delayed final : public TrimPolicy {
 public:
  Delayed(std::string_view name, const TrimParameters& parameters, const TrimDrive& drive,
          bool checks_writes)
      : name_(name),
        costs_(parameters.costs),
        delay_(parameters.delay),
        checks_writes_(checks_writes),
        block_(std::min({kLargestBlock, costs_.slice, drive.map_unit})),
        slice_blocks_(costs_.slice / block_),
        buffer_slices_(std::max<std::int64_t>(drive.write_buffer / costs_.slice, 1)) {
    require(delay_.batch_map_ratio >= 0.0 && delay_.batch_map_ratio <= 1.0,
            "trim_batch_map: must lie between 0 and 1");
    const dtrim_config config = config_for(drive);
    const std::uint32_t bytes = dtrim_memory_bytes(&config);
    require(bytes > 0,
            "trim delayed: needs a trim_slice of 1, 2, 4 ... 32 blocks of " +
                std::to_string(block_.count()) +
                " B, a trim_step that is a power of two, trim_pending_ranges of 1 to 65534, and "
                "trim_list_entries of at most 16777216");
    memory_.resize(bytes / sizeof(std::uint32_t));
    const dtrim_callbacks callbacks{this, &Delayed::invalidate, nullptr};
    FLASHLAB_CHECK(dtrim_init(&module_, &config, &callbacks, memory_.data(), bytes) == 0);
  }

  [[nodiscard]] std::string_view name() const override { return name_; }

  Nanos command(std::span<const Extent> ranges, TrimTarget& target,
                TrimCounters& counters) override {
    const Using using_target(*this, target);
    asked_.clear();
    for (const Extent& range : ranges) asked_.push_back(blocks_inside(range));
    const dtrim_work work =
        dtrim_trim(&module_, asked_.data(), static_cast<std::uint32_t>(asked_.size()));
    const auto count = static_cast<std::int64_t>(ranges.size());
    const Nanos handling = costs_.command + costs_.range * count;
    ++counters.commands;
    counters.ranges += ranges.size();
    counters.command_time += handling;
    const Nanos forced = applied(work, counters);
    counters.forced_time += forced;
    return handling + forced;
  }

  Nanos written(const Extent& extent, TrimTarget& target, TrimCounters& counters) override {
    if (!checks_writes_ || dtrim_pending(&module_) == 0) return Nanos{0};
    const Using using_target(*this, target);
    const dtrim_range blocks = blocks_around(extent);
    const dtrim_work work = dtrim_write(&module_, blocks.block, blocks.blocks);
    const Nanos noted = list_time(1 + work.probes, counters);
    const Nanos forced = slices_time(work.slices, work.batches, counters);
    counters.forced_time += noted + forced;
    return noted + forced;
  }

  Nanos reading(const Extent& extent, TrimTarget& target, TrimCounters& counters) override {
    if (dtrim_pending(&module_) == 0) return Nanos{0};
    const Using using_target(*this, target);
    const dtrim_range wanted = blocks_around(extent);
    const std::int64_t end = std::int64_t{wanted.block} + wanted.blocks;
    Nanos spent;
    for (std::int64_t at = wanted.block; at < end && dtrim_pending(&module_) > 0;) {
      const std::int64_t slice = at / slice_blocks_;
      const std::int64_t to = std::min(end, (slice + 1) * slice_blocks_);
      spent += read_slice(static_cast<std::uint32_t>(slice), mask_of(at, to), counters);
      at = to;
    }
    counters.forced_time += spent;
    return spent;
  }

  Nanos idle(TrimTarget& target, TrimCounters& counters) override {
    const Using using_target(*this, target);
    Nanos spent;
    while (spent == Nanos{0} && dtrim_pending(&module_) > 0) {
      spent = applied(dtrim_step(&module_, delay_.step_slices), counters);
    }
    counters.idle_time += spent;
    return spent;
  }

  Nanos before_collection(TrimTarget& target, TrimCounters& counters) override {
    const Nanos spent = drain(target, counters);
    counters.drain_time += spent;
    return spent;
  }

  Nanos retire(TrimTarget& target, TrimCounters& counters) override {
    return drain(target, counters);
  }

  void restart() override { dtrim_reset(&module_); }

  void add_pending(ExtentSet& doubt) const override {
    for (std::uint32_t i = 0; i < dtrim_pending(&module_); ++i) {
      const dtrim_range range = dtrim_pending_at(&module_, i);
      const std::int64_t end = std::int64_t{range.block} + range.blocks;
      for (std::int64_t slice = range.block / slice_blocks_; slice * slice_blocks_ < end; ++slice) {
        const auto number = static_cast<std::uint32_t>(slice);
        for_each_run(number, dtrim_pending_blocks(&module_, number),
                     [&](const Extent& extent) { doubt.insert(extent); });
      }
    }
  }

  [[nodiscard]] std::unique_ptr<TrimDelayStatus> status() const override {
    dtrim_statistics s;
    dtrim_get_statistics(&module_, &s);
    auto out = std::make_unique<TrimDelayStatus>();
    out->pending_ranges = s.pending_ranges;
    out->pending_high = s.pending_ranges_high;
    out->list_entries = s.write_entries;
    out->list_high = s.write_entries_high;
    out->list_lookups = s.slice_lookups;
    out->list_probes = s.entries_probed;
    out->writes_while_pending = s.writes_while_pending;
    out->writes_noted = s.writes_noted;
    out->blocks_kept = s.blocks_kept;
    out->merged_ranges = s.merged_ranges;
    out->idle_slices = s.slices_applied_idle;
    out->drained_slices = s.slices_applied_drain;
    out->forced_slices = s.slices_applied_forced;
    out->reads_of_pending = s.reads_of_pending;
    out->yields = s.yields;
    out->drains = s.drains;
    out->full_tables =
        s.list_full_splits + s.list_full_forced + s.ranges_full_oldest + s.ranges_full_forced;
    out->forgotten_blocks = s.blocks_forgotten;
    return out;
  }

  void reset_status() override {
    dtrim_reset_statistics(&module_);
    lookups_ = 0;
  }

  void archive(Archive& a) override {
    const dtrim_config config = module_.state.config;
    a.one(module_.state);
    require(same(config, module_.state.config),
            "the saved state is of a device with other parameters");
    a.block(memory_.data(), memory_.size());
    a.one(lookups_);
  }

 private:
  // Whose map the module's calls change, for as long as one of them runs.
  class Using {
   public:
    Using(Delayed& policy, TrimTarget& target) : policy_(policy) { policy_.target_ = &target; }
    ~Using() { policy_.target_ = nullptr; }
    Using(const Using&) = delete;
    Using& operator=(const Using&) = delete;

   private:
    Delayed& policy_;
  };

  [[nodiscard]] dtrim_config config_for(const TrimDrive& drive) const {
    const std::int64_t blocks = ceil_div(drive.capacity.count(), block_.count());
    const bool fits = blocks <= std::int64_t{UINT32_MAX} - 64 && slice_blocks_ <= 32;
    dtrim_config config =
        dtrim_default_config(fits ? static_cast<std::uint32_t>(blocks) : 0,
                             fits ? static_cast<std::uint32_t>(slice_blocks_) : 0);
    config.ranges = delay_.pending_ranges;
    config.writes = delay_.list_entries;
    config.buckets = std::bit_ceil(std::max(delay_.list_entries, 1U));
    config.batch_slices = delay_.step_slices;
    config.flags = (delay_.merge ? std::uint32_t{DTRIM_MERGE} : 0U) |
                   (drive.map_unit >= costs_.slice ? std::uint32_t{DTRIM_WHOLE_SLICES} : 0U);
    return config;
  }

  static bool same(const dtrim_config& a, const dtrim_config& b) {
    return a.blocks == b.blocks && a.blocks_per_slice == b.blocks_per_slice &&
           a.ranges == b.ranges && a.writes == b.writes && a.buckets == b.buckets &&
           a.batch_slices == b.batch_slices && a.flags == b.flags;
  }

  static void invalidate(void* context, std::uint32_t slice, std::uint32_t slices,
                         std::uint32_t blocks) {
    const Delayed& policy = *static_cast<const Delayed*>(context);
    if (slices > 1) {
      const std::int64_t first = slice * policy.slice_blocks_;
      policy.target_->unmap(policy.extent_of(first, first + slices * policy.slice_blocks_));
      return;
    }
    policy.for_each_run(slice, blocks,
                        [&](const Extent& extent) { policy.target_->unmap(extent); });
  }

  // The consecutive blocks of a slice that a mask names.
  template <class F>
  void for_each_run(std::uint32_t slice, std::uint32_t blocks, F f) const {
    const std::int64_t first = slice * slice_blocks_;
    while (blocks != 0) {
      const int begin = std::countr_zero(blocks);
      const int length = std::countr_one(blocks >> begin);
      f(extent_of(first + begin, first + begin + length));
      if (begin + length == 32) return;
      blocks &= ~std::uint32_t{0} << (begin + length);
    }
  }

  [[nodiscard]] Extent extent_of(std::int64_t begin, std::int64_t end) const {
    return {to_lba(block_ * begin), to_lba(block_ * end)};
  }

  // What lies wholly in the extent: less is trimmed rather than more.
  [[nodiscard]] dtrim_range blocks_inside(const Extent& extent) const {
    const std::int64_t begin = ceil_div(to_bytes(extent.begin).count(), block_.count());
    const std::int64_t end = to_bytes(extent.end) / block_;
    return {static_cast<std::uint32_t>(begin),
            static_cast<std::uint32_t>(std::max<std::int64_t>(end - begin, 0))};
  }

  [[nodiscard]] dtrim_range blocks_around(const Extent& extent) const {
    const std::int64_t begin = to_bytes(extent.begin) / block_;
    const std::int64_t end = ceil_div(to_bytes(extent.end).count(), block_.count());
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)};
  }

  // Blocks [begin, end) of one slice.
  [[nodiscard]] std::uint32_t mask_of(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = begin % slice_blocks_;
    const std::uint64_t ones = (std::uint64_t{1} << (end - begin)) - 1;
    return static_cast<std::uint32_t>(ones << first);
  }

  Nanos read_slice(std::uint32_t slice, std::uint32_t blocks, TrimCounters& counters) {
    const bool applies = dtrim_read(&module_, slice, blocks) != 0;
    const Nanos searched = list_time(1, counters);
    return searched + (applies ? slices_time(1, 1, counters) : Nanos{0});
  }

  Nanos drain(TrimTarget& target, TrimCounters& counters) {
    if (dtrim_pending(&module_) == 0) return Nanos{0};
    const Using using_target(*this, target);
    return applied(dtrim_drain(&module_, UINT32_MAX), counters);
  }

  Nanos applied(const dtrim_work& work, TrimCounters& counters) {
    return list_time(work.probes, counters) + slices_time(work.slices, work.batches, counters);
  }

  // Searches of the pending ranges and entries looked at, besides the places of the list.
  Nanos list_time(std::int64_t others, TrimCounters& counters) {
    const Nanos spent = costs_.list * (others + lookups());
    counters.list_time += spent;
    return spent;
  }

  // Places of the Check Write List that were looked at since the last time.
  std::int64_t lookups() {
    dtrim_statistics s;
    dtrim_get_statistics(&module_, &s);
    const std::uint64_t before = lookups_;
    lookups_ = s.slice_lookups;
    return static_cast<std::int64_t>(lookups_ - before);
  }

  // A step of several slices goes through the write buffer once if that is less, and finds the
  // map's entries beside one another.
  Nanos slices_time(std::int64_t slices, std::int64_t batches, TrimCounters& counters) const {
    const auto each =
        static_cast<std::int64_t>(static_cast<double>(costs_.map.count()) * delay_.batch_map_ratio);
    const Nanos buffer = costs_.buffer * std::min(slices, batches * buffer_slices_);
    const Nanos map = costs_.map * batches + Nanos{each} * (slices - batches);
    counters.slices += static_cast<std::uint64_t>(slices);
    counters.buffer_time += buffer;
    counters.map_time += map;
    return buffer + map;
  }

  const std::string_view name_;
  const TrimCosts costs_;
  const TrimDelay delay_;
  const bool checks_writes_;
  const Bytes block_;
  const std::int64_t slice_blocks_;
  const std::int64_t buffer_slices_;
  std::vector<std::uint32_t> memory_;
  dtrim module_{};
  TrimTarget* target_ = nullptr;
  std::vector<dtrim_range> asked_;
  std::uint64_t lookups_ = 0;
};

}  // namespace

std::unique_ptr<TrimPolicy> make_trim_delayed(const TrimParameters& p, const TrimDrive& drive) {
  return std::make_unique<Delayed>("delayed", p, drive, true);
}

// Without the Check Write List: it erases what was written after a TRIM, as the paper's figure 1
// warns. To show that, and for nothing else.
std::unique_ptr<TrimPolicy> make_trim_delayed_unchecked(const TrimParameters& p,
                                                        const TrimDrive& drive) {
  return std::make_unique<Delayed>("delayed_unchecked", p, drive, false);
}

}  // namespace flashlab::flash
