// A hard disk: one arm, spinning platters, a track buffer with read-ahead, a write cache, a queue.
//
// What is modelled, and from where, is in docs/architecture.md; how far it can be trusted in
// docs/validation.md. The arm is the only resource that operations compete for, the host link the
// second. Everything happens on the model's own timeline (base/device.hpp): `advance` replays all
// decisions that the arm took up to now, each at the time at which it was due.
//
// NCQ leaves the order of outstanding commands to the drive. This one keeps it where data depends
// on it: overlapping writes take effect in the order of their submission, wherever each of them
// waits, and a read waits for the direct writes (FUA, or no write cache) to its sectors that are
// queued before it. A direct write supersedes older dirty data of its sectors.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "base/extent_set.hpp"
#include "disk/mechanics.hpp"
#include "disk/policy/scheduler.hpp"
#include "disk/read_cache.hpp"

namespace flashlab::disk {

inline constexpr std::uint32_t kQueueDepthMost = 32;  // of SATA

// What each one is: disk/describe.hpp.
struct HddParameters {
  GeometryParameters geometry;
  SeekParameters seek;
  BytesPerSecond link_rate;
  Nanos command_overhead;
  Bytes cache;
  std::int64_t read_segments = 0;
  bool write_cache = true;
  double write_share = 0.0;
  Nanos destage_idle;
  std::uint32_t queue_depth = 1;
  SchedulerParameters scheduler;
  Nanos start_angle;
};

struct HddCounters {
  DeviceCounters device;
  std::uint64_t buffer_hits = 0;  // reads served without moving the arm
  std::uint64_t stream_hits = 0;  // reads that the running read-ahead reached
  std::uint64_t media_reads = 0;
  std::uint64_t media_writes = 0;
  Bytes media_read_bytes;  // without what was read ahead
  Bytes media_write_bytes;
  Nanos positioning;  // seek, settle and rotation
  Nanos transferring;
};

class Hdd final : public DeviceModel {
 public:
  // Throws OperatingError for parameters that no drive can have.
  Hdd(const HddParameters& parameters, Host& host);

  void submit(Tag tag, const Request& request, Nanos now) override;
  void wake(Nanos now) override;
  [[nodiscard]] Bytes capacity() const override { return mechanics_.geometry().capacity(); }
  [[nodiscard]] bool rotational() const override { return true; }
  [[nodiscard]] bool durable_when_answered() const override { return !parameters_.write_cache; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return parameters_.queue_depth; }
  std::vector<Extent> in_doubt(Nanos now) override;
  // What the host was told (answers to come, the wish for a wake-up) is the host's to save.
  void archive(Archive& a) override;
  [[nodiscard]] const HddCounters& counters() const { return counters_; }
  [[nodiscard]] const Mechanics& mechanics() const { return mechanics_; }

 private:
  struct Command {
    Tag tag = 0;
    Op op = Op::read;
    bool fua = false;
    Extent extent;
    Bytes bytes;  // of all ranges of a TRIM
    Nanos arrival;
    Target target = {};  // of one in `queue_`
    [[nodiscard]] bool conflicts(const Command& other) const {
      return (op == Op::write || other.op == Op::write) && extent.overlaps(other.extent);
    }
  };
  // The head reads on behind the last request until the segment is full or a command needs the arm.
  struct ReadAhead {
    Lba first;   // where it began
    Lba origin;  // under the head at `begin`: moves along, so that no question starts at `first`
    Nanos begin;
    Lba limit;  // the segment is full there
  };
  struct MediaWrite {
    Extent extent;
    Nanos end;
  };

  void accept(const Command& command);
  void accept_read(const Command& command);
  void accept_write(const Command& command);
  void accept_flush(const Command& command);
  [[nodiscard]] Command command_of(Tag tag, const Request& request, Nanos now) const;
  [[nodiscard]] bool goes_direct(const Command& write) const;
  [[nodiscard]] bool has_to_wait(const Command& write) const;
  void admit_write(const Command& write, Nanos when);
  void enqueue(const Command& command);
  void advance(Nanos now);
  bool step(Nanos now);
  void finish_destage(Nanos now);
  void admit_blocked_writes(Nanos when);
  void finish_flush(Nanos now);
  [[nodiscard]] std::optional<Nanos> queue_start() const;
  [[nodiscard]] std::optional<Nanos> destage_start() const;
  [[nodiscard]] bool destage_presses() const;
  void serve_queue(Nanos start);
  [[nodiscard]] Command take_next(Nanos start);
  void serve_read(const Command& command, Nanos start);
  void serve_write(const Command& command, Nanos start);
  void start_destage(Nanos start);
  bool follow_read_ahead(const Command& command, Nanos start);
  void stop_read_ahead(Nanos when);
  [[nodiscard]] Lba read_ahead_at(Nanos when) const;
  [[nodiscard]] Extent read_ahead_holds(Nanos when) const;
  void slide_read_ahead(Lba host_reached, Nanos when);
  [[nodiscard]] Bytes write_room() const;
  [[nodiscard]] Sectors segment() const;
  [[nodiscard]] HeadState head_at(Nanos when) const;
  MediaAccess move(Nanos start, const Extent& extent, bool settles);
  void cache_write(const Command& command, Nanos when);
  void complete_from_media(const Command& command, Nanos end);
  void complete_over_link(const Command& command, Nanos ready, Bytes bytes);
  void finish(Tag tag, Nanos when);
  void ask_for_wake();
  // An answer that was given with a time after `now` is void: the host never got it. The counters
  // stay; the heads are parked at the outer edge, and the disk is ready at `now`.
  void restart(Nanos now) override;

  HddParameters parameters_;
  Mechanics mechanics_;
  std::unique_ptr<Scheduler> scheduler_;
  Host& host_;
  HddCounters counters_;

  HeadState head_;
  Nanos arm_free_;
  Nanos link_free_;
  Nanos quiet_since_;  // last time that a host command used the arm or arrived for it
  Nanos changed_at_;   // last submission: no decision may lie before what it has changed
  Nanos barrier_;      // end of the last flush: what was submitted before it ends starts after it
  bool destaged_last_ = false;
  std::vector<Command> queue_;  // by arrival
  // What take_next() chooses from, and its places in `queue_`. Of no meaning between two calls.
  std::array<Queued, kQueueDepthMost> choice_;
  std::array<std::size_t, kQueueDepthMost> places_{};
  std::deque<Command> blocked_writes_;  // until the cache has room, and what has to follow them
  std::optional<Command> flush_;
  std::deque<Command> held_;  // behind a flush
  ReadCache read_cache_;
  std::optional<ReadAhead> read_ahead_;
  ExtentSet dirty_;
  std::optional<MediaWrite> destage_;
  std::optional<MediaWrite> direct_;  // the last one, which may still be under way
  std::optional<Lba> written_to_;     // where the arm has last written, if it did nothing since
};

}  // namespace flashlab::disk
