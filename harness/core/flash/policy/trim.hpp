// What does the drive do when it is told that data is no longer needed?
//
// A TRIM command has three costs (the Delayed TRIM paper's breakdown): handling the command and its
// ranges, looking up every slice in the write buffer, and clearing every slice's map entry. A
// policy says how much of the firmware's time the command takes, and unmaps through the target. One
// that delays work gets its chance when the drive is idle, and hears of what it must not get in the
// way of: reads, writes, and garbage collection. One file per policy, and for each one here: its
// declaration, its line in the table, its parameters.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/archive.hpp"
#include "base/extent.hpp"
#include "base/extent_set.hpp"

namespace flashlab::flash {

struct TrimCosts {
  Nanos command;
  Nanos range;
  Nanos buffer;  // per slice
  Nanos map;     // per slice
  Bytes slice;
  Nanos list = Nanos{0};  // of `delayed`
};

// The tables and habits of the policy `delayed`; see flash/trim/delayed_trim.h.
struct TrimDelay {
  std::uint32_t pending_ranges = 1024;
  std::uint32_t list_entries = 2048;
  bool merge = false;
  std::uint32_t step_slices = 1;
  double batch_map_ratio = 1.0;
};

struct TrimParameters {
  std::string policy = "immediate";
  TrimCosts costs;
  bool queued = true;
  std::uint32_t max_ranges = 1;
  TrimDelay delay;
};

template <class V>
void describe(V& v, TrimParameters& p) {
  v.required("trim", p.policy, "what the drive does with data that is no longer needed");
  v.required("trim_command_time_ns", p.costs.command, "of the firmware, per command");
  v.required("trim_range_time_ns", p.costs.range, "... per range");
  v.required("trim_buffer_time_ns", p.costs.buffer, "... per slice, to look it up in the buffer");
  v.required("trim_map_time_ns", p.costs.map, "... per slice, to clear its map entry");
  v.required("trim_slice_bytes", p.costs.slice, "what a range is handled in");
  v.required("trim_queued", p.queued,
             "false: SATA's non-NCQ command, alone in the drive, as its flush then is");
  v.required("trim_max_ranges", p.max_ranges, "of one command");
  v.optional("trim_list_time_ns", p.costs.list,
             "of delayed: a search of what is pending, or of one place in the write list");
  v.optional("trim_pending_ranges", p.delay.pending_ranges, "of delayed: that the table holds");
  v.optional("trim_list_entries", p.delay.list_entries, "of delayed: that the write list holds");
  v.optional("trim_merge", p.delay.merge, "of delayed: ranges that touch or overlap become one");
  v.optional("trim_step", p.delay.step_slices,
             "of delayed: slices at once, which no command interrupts; a power of two");
  v.optional("trim_batch_map_ratio", p.delay.batch_map_ratio,
             "of delayed: of trim_map_time, for each slice of a step but its first");
}

// The drive that a policy works for.
struct TrimDrive {
  Bytes capacity;
  Bytes map_unit;
  Bytes write_buffer;
};

// The first three times are by kind of work, and also contain what was done later than its command;
// `list` is what only a delay costs. How much of the four was done when: `idle`, in which no
// command wanted the firmware; `drain`, before a collection; `forced`, in a read, a write or a TRIM
// that had to wait for it. The rest was done in TRIM commands as ever.
struct TrimCounters {
  std::uint64_t commands = 0;
  std::uint64_t ranges = 0;
  std::uint64_t slices = 0;
  Nanos command_time;
  Nanos buffer_time;
  Nanos map_time;
  Nanos list_time;
  Nanos idle_time;
  Nanos drain_time;
  Nanos forced_time;
};

// What a policy may do to the drive.
class TrimTarget {
 public:
  // Forgets the content of all map units that lie wholly in the extent. A unit that is trimmed only
  // in part stays: the rest of it is still wanted.
  virtual void unmap(const Extent& extent) = 0;

 protected:
  ~TrimTarget() = default;
};

// What a policy knows of work that it has put off, since the last reset of the counters.
struct TrimDelayStatus {
  std::uint64_t pending_ranges = 0;  // now
  std::uint64_t pending_high = 0;
  std::uint64_t list_entries = 0;  // now
  std::uint64_t list_high = 0;
  std::uint64_t list_lookups = 0;
  std::uint64_t list_probes = 0;
  std::uint64_t writes_while_pending = 0;
  std::uint64_t writes_noted = 0;
  std::uint64_t blocks_kept = 0;  // trimmed, and written again before that was applied
  std::uint64_t merged_ranges = 0;
  std::uint64_t idle_slices = 0;
  std::uint64_t drained_slices = 0;
  std::uint64_t forced_slices = 0;
  std::uint64_t reads_of_pending = 0;
  std::uint64_t yields = 0;
  std::uint64_t drains = 0;
  std::uint64_t full_tables = 0;
  std::uint64_t forgotten_blocks = 0;
};

class TrimPolicy {
 public:
  virtual ~TrimPolicy() = default;
  // The one in the table.
  [[nodiscard]] virtual std::string_view name() const = 0;
  // One command. Returns the firmware's time before it can be acknowledged.
  virtual Nanos command(std::span<const Extent> ranges, TrimTarget& target,
                        TrimCounters& counters) = 0;
  // The host is about to write the extent: what is pending must leave it alone from here on.
  // Returns the firmware's time, which comes before the write's own.
  virtual Nanos written(const Extent& /*extent*/, TrimTarget& /*target*/,
                        TrimCounters& /*counters*/) {
    return Nanos{0};
  }
  // The extent is about to be read: what is pending of it must be as it will be read from now on.
  // Returns the firmware's time, which comes before the read's own.
  virtual Nanos reading(const Extent& /*extent*/, TrimTarget& /*target*/,
                        TrimCounters& /*counters*/) {
    return Nanos{0};
  }
  // No command wants the firmware: does a step of pending work, which no command interrupts.
  // Returns the firmware's time; zero if nothing is left.
  virtual Nanos idle(TrimTarget& /*target*/, TrimCounters& /*counters*/) { return Nanos{0}; }
  // A block is about to be chosen and collected: what is pending must be applied, or dead data
  // would be copied. Returns the firmware's time.
  virtual Nanos before_collection(TrimTarget& /*target*/, TrimCounters& /*counters*/) {
    return Nanos{0};
  }
  // Nobody will ask for what is pending again: it must be applied. Returns the firmware's time.
  virtual Nanos retire(TrimTarget& /*target*/, TrimCounters& /*counters*/) { return Nanos{0}; }
  // The power has failed: what was in RAM is gone.
  virtual void restart() {}
  // Adds what is pending: after a power cut it would hold its old content.
  virtual void add_pending(ExtentSet& /*doubt*/) const {}
  // Null if this policy never puts anything off.
  [[nodiscard]] virtual std::unique_ptr<TrimDelayStatus> status() const { return nullptr; }
  virtual void reset_status() {}
  virtual void archive(Archive& /*a*/) {}
};

std::unique_ptr<TrimPolicy> make_trim_none(const TrimParameters& p, const TrimDrive& drive);
std::unique_ptr<TrimPolicy> make_trim_immediate(const TrimParameters& p, const TrimDrive& drive);
std::unique_ptr<TrimPolicy> make_trim_delayed(const TrimParameters& p, const TrimDrive& drive);
std::unique_ptr<TrimPolicy> make_trim_delayed_unchecked(const TrimParameters& p,
                                                        const TrimDrive& drive);

struct TrimEntry {
  std::string_view name;
  std::unique_ptr<TrimPolicy> (*make)(const TrimParameters& p, const TrimDrive& drive);
};
inline constexpr std::array kTrimPolicies{
    TrimEntry{"none", make_trim_none},
    TrimEntry{"immediate", make_trim_immediate},
    TrimEntry{"delayed", make_trim_delayed},
    TrimEntry{"delayed_unchecked", make_trim_delayed_unchecked},
};

// `name` stands for that of the parameters. Throws OperatingError for one that is not in the table,
// or parameters that the policy cannot have.
std::unique_ptr<TrimPolicy> make_trim_policy(std::string_view name,
                                             const TrimParameters& parameters,
                                             const TrimDrive& drive);
[[nodiscard]] bool is_trim_policy(std::string_view name);

}  // namespace flashlab::flash
