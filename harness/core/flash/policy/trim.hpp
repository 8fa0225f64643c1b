// What does the drive do when it is told that data is no longer needed?
//
// A TRIM command has three costs (the Delayed TRIM paper's breakdown): handling the command and its
// ranges, looking up every slice in the write buffer, and clearing every slice's map entry. A
// policy says how much of the firmware's time the command takes, and unmaps through the target. One
// that delays work gets its chance when the drive is idle, when a page is written, and before
// garbage is collected.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/archive.hpp"
#include "base/extent.hpp"

namespace flashlab::flash {

struct TrimCosts {
  Nanos command;
  Nanos range;
  Nanos buffer;  // per slice
  Nanos map;     // per slice
  Bytes slice;
};

struct TrimCounters {
  std::uint64_t commands = 0;
  std::uint64_t ranges = 0;
  std::uint64_t slices = 0;
  Nanos command_time;
  Nanos buffer_time;
  Nanos map_time;
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
  virtual void archive(Archive& /*a*/) {}
};

// Throws OperatingError for a name that is not in the table: none, immediate.
std::unique_ptr<TrimPolicy> make_trim_policy(std::string_view name, const TrimCosts& costs);
[[nodiscard]] bool is_trim_policy(std::string_view name);

std::unique_ptr<TrimPolicy> make_trim_none(const TrimCosts& costs);
std::unique_ptr<TrimPolicy> make_trim_immediate(const TrimCosts& costs);

}  // namespace flashlab::flash
