// A flash drive: firmware, host link, write buffer, translation layer, dies behind channels.
//
// What is modelled, and from where, is in docs/architecture.md; how far it can be trusted in
// docs/validation.md. A request's completion is known when it is submitted: nothing overtakes on
// the firmware, reads go before work that has not begun, and whatever a write must wait for is
// dated at once.
//
// The parts:  firmware  one core; each command takes its time, and TRIM as much as it takes
//             link      transfers to and from the host
//             buffer    volatile RAM (unless power_loss_protection): a write is acknowledged when
//                       its data is there; pages go to their dies as soon as they are complete.
//                       A unit of the map that was written in part waits there for the rest of it:
//                       until it is whole, a flush, a read of what is missing, or too many wait
//             Ftl       where everything is; garbage collection
//             Nand      dies and channels in time
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.hpp"
#include "base/extent_set.hpp"
#include "base/ring.hpp"
#include "flash/ftl.hpp"
#include "flash/lane.hpp"
#include "flash/nand.hpp"
#include "flash/partial_units.hpp"
#include "flash/policy/placement.hpp"
#include "flash/policy/slc.hpp"
#include "flash/policy/trim.hpp"
#include "flash/unit_set.hpp"

namespace flashlab::flash {

// A part of the address space that is counted apart: whole units of the map.
struct NamedRange {
  std::string name;
  Extent extent;
  StreamId stream = 0;  // for placement `range`
};

// What each one is: flash/describe.hpp.
struct SsdParameters {
  GeometryParameters geometry;
  NandParameters nand;
  BytesPerSecond link_rate;
  Nanos command_time;
  std::optional<Nanos> write_command_time;
  Nanos read_latency;
  Nanos write_latency;
  Bytes write_buffer;
  bool power_loss_protection = false;
  SlcParameters slc;
  FtlParameters ftl;
  std::string placement = "none";
  TrimParameters trim;
  bool background_gc = false;
  Nanos background_idle;
  std::uint32_t background_target = 4;
  std::uint32_t queue_depth = 1;
  std::vector<NamedRange> ranges;
};

struct SsdCounters {
  DeviceCounters device;
  // Written again before their page was programmed, or trimmed while they waited for their rest.
  std::uint64_t coalesced_units = 0;
  std::uint64_t buffer_hits = 0;     // pages read from RAM
  std::uint64_t unmapped_reads = 0;  // pages read that hold nothing
  std::uint64_t merge_reads = 0;     // pages read as the host had written a unit in part
  std::uint64_t folded_pages = 0;    // moved out of the SLC cache
  Nanos command_time;                // of the firmware
  TrimCounters trim;
};

class Ssd final : public DeviceModel, private TrimTarget, private SlcDrive {
 public:
  // Throws OperatingError for parameters that no drive can have.
  Ssd(const SsdParameters& parameters, Host& host);

  void submit(Tag tag, const Request& request, Nanos now) override;
  void wake(Nanos now) override;
  [[nodiscard]] Bytes capacity() const override { return ftl_.geometry().capacity(); }
  [[nodiscard]] bool rotational() const override { return false; }
  [[nodiscard]] bool durable_when_answered() const override {
    return parameters_.power_loss_protection;
  }
  [[nodiscard]] bool flushes_on_fua() const override { return true; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return parameters_.queue_depth; }
  void expect(const Request& request) override;
  void expect_next(const Request& request) override;
  // Also clears all counters.
  void assume_written(const Extent& extent) override;
  std::vector<Extent> in_doubt(Nanos now) override;
  void archive(Archive& a) override;

  // Brings the drive to a state without taking time, and clears all counters: the first
  // `fill_ratio` of the address space is written in order, then `overwrites` times as much as it
  // holds is written again, uniformly at random over it.
  void precondition(double fill_ratio, double overwrites, std::uint64_t seed);
  // Full, and steady under uniform random writes; the drive must be new.
  void to_steady_state(std::uint64_t seed);

  // From `now` on TRIM is handled by this policy; what the one before had pending is applied. The
  // name is part of the saved state. Throws OperatingError for an unknown one.
  void set_trim_policy(std::string_view name, Nanos now);
  // One that is not in the table: its state cannot be restored.
  void set_trim_policy(std::unique_ptr<TrimPolicy> policy, Nanos now);
  [[nodiscard]] std::string_view trim_policy() const { return trim_->name(); }
  // From `now` on these ranges, ascending and disjoint, are counted apart, and with placement
  // `range` followed; what was counted so far is the rest's, and what was written stays where it
  // is. Part of the saved state. Throws OperatingError for ranges or streams that the drive has
  // not.
  void set_ranges(std::vector<NamedRange> ranges, Nanos now);
  [[nodiscard]] const std::vector<NamedRange>& ranges() const { return parameters_.ranges; }
  // From `now` on all operations on the cells of this die take so many thousandths of their time,
  // 1000 to 1,000,000. Part of the saved state. Throws OperatingError.
  void slow_die(std::int64_t die, std::int64_t thousandths, Nanos now);

  [[nodiscard]] const SsdCounters& counters() const { return counters_; }
  // Null where the TRIM policy puts nothing off.
  [[nodiscard]] std::unique_ptr<TrimDelayStatus> trim_status() const { return trim_->status(); }
  // Null where the SLC policy has nothing to say beyond the counters.
  [[nodiscard]] std::optional<SlcStatus> slc_status() const {
    return slc_ ? slc_->status() : std::nullopt;
  }
  [[nodiscard]] const Ftl& ftl() const { return ftl_; }
  [[nodiscard]] const Nand& nand() const { return nand_; }
  [[nodiscard]] const SsdParameters& parameters() const { return parameters_; }
  void reset_counters();

 private:
  class Backend;  // what the FTL's operations cost, and whom they must ask first
  struct Destination {
    StreamId stream;  // where it is put
    StreamId label;   // whom it is attributed to
  };
  struct Recent {
    Extent extent;
    Nanos done;
  };

  void expect_units(const Extent& extent) const;
  Nanos serve(const Request& request, Nanos begin);
  Nanos read(const Request& request, Nanos begin);
  Nanos read_page(Bytes bytes, Slot slot, Nanos begin);
  Nanos read_part(Lpn lpn, const Extent& sectors, Nanos begin);
  [[nodiscard]] Nanos command_time(Op op) const;
  Nanos write(const Request& request, Nanos begin);
  Nanos write_unit(const Destination& destination, Lpn lpn, Nanos begin);
  Nanos write_part(const Destination& destination, Lpn lpn, const Extent& sectors, Nanos begin);
  [[nodiscard]] bool is_replaceable(Slot slot, Nanos begin);
  void count_coalesced(const Destination& destination, Lpn lpn);
  [[nodiscard]] std::uint32_t plain_units(const Destination& destination, Lpn lpn,
                                          std::uint32_t most) const;
  Nanos write_units(const Destination& destination, Lpn lpn, std::uint32_t units, Nanos begin);
  Nanos leave(Lpn lpn, Nanos begin);
  Nanos merge_read(Slot slot, Nanos begin);
  Nanos flush(Nanos begin);
  Nanos trim(const Request& request, Nanos begin);
  void unmap(const Extent& extent) override;
  void retire_pending();
  [[nodiscard]] Extent in_units(const Extent& extent) const;
  Nanos admit_unit(Nanos begin);
  void place(Lpn lpn, const Destination& destination, Nanos arrived, Nanos whole);
  Nanos page_filled(StreamId stream, Nanos whole);
  [[nodiscard]] const Geometry& slc_geometry() const override { return ftl_.geometry(); }
  [[nodiscard]] Bytes unmapped() const override;
  [[nodiscard]] std::uint32_t erases_of(Page page) const override;
  [[nodiscard]] bool wanted(Page page) const override;
  [[nodiscard]] bool is_idle(Die die) const override { return nand_.is_idle(die); }
  void fold(Die die) override;
  void restart(Nanos now) override;
  void conditioned();
  void pad(Nanos ready);
  void arrive(Nanos now);
  void apply_steps_until(Nanos now);
  void apply_pending();
  void idle_until(Nanos now);
  bool work_when_idle(Nanos when);
  void adopt(std::vector<NamedRange> ranges);
  void archive_ranges(Archive& a);
  void archive_trim(Archive& a);
  [[nodiscard]] bool in_ram(Slot slot, Nanos now);
  [[nodiscard]] Destination destination_of(const Request& request) const;
  Nanos over_link(Bytes bytes, Nanos ready);

  SsdParameters parameters_;
  Host& host_;
  Placement placement_;
  std::vector<RangeStream> ranges_;  // of parameters_, for the policy
  std::unique_ptr<TrimPolicy> trim_;
  Ftl ftl_;
  std::unique_ptr<SlcPolicy> slc_;  // null: no cache
  Nand nand_;
  SsdCounters counters_;
  Lane link_;
  TransferTime link_time_;
  std::uint32_t buffer_units_;  // size
  std::uint32_t buffered_ = 0;  // units in it, those of open pages and partial ones included
  PartialUnits partial_;
  std::uint32_t partial_most_;
  Nanos admitted_;  // when the last of them got its place
  // By stream: when all that its open page's units need is there, what merge reads bring included.
  std::vector<Nanos> filled_;
  Nanos firmware_free_;
  Nanos last_done_;  // of all commands so far
  Nanos quiet_since_;
  Nanos stepped_;            // when it last began something for itself
  Ring<Recent> unanswered_;  // writes and TRIMs, by submission
  UnitSet trimmed_;          // since the last flush
};

}  // namespace flashlab::flash
