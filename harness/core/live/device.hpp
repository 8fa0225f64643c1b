// A device model against the real clock, with data: what a block device does, without the kernel.
//
// Requests come from several threads. Each is given to the model at the (scaled) moment of its
// arrival, under one lock, and answered when the model's completion time has come: by a pacing
// thread that sleeps until shortly before and then watches the clock. No thread sleeps for a
// request of its own.
//
// The path between an application and this device takes time, too. `PathCost`, measured at start,
// is taken off the time that a reply is held back, so that the application sees the model's
// latency. A reply that leaves later than it should is late by the difference, and counted.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <thread>
#include <vector>

#include "base/device.hpp"
#include "base/extent_set.hpp"
#include "host/latency_histogram.hpp"
#include "live/clock.hpp"
#include "live/store.hpp"
#include "live/undo_log.hpp"

namespace flashlab::live {

// Somebody waits for an answer. Called once, from any thread; 0 or an errno.
class Ticket {
 public:
  virtual ~Ticket() = default;
  virtual void reply(int error) = 0;
};

enum class Pace : std::uint8_t {
  real,          // replies at the model's times
  virtual_time,  // replies at once; to the model, each request comes when the one before it is done
  none,          // replies at once; the model is not asked, what was written counts as old data
  constant,      // replies after a fixed time, past the visible end: to measure the path
};

// Time that an I/O takes besides the drive's, by operation and size.
struct PathCost {
  Nanos base;
  double per_byte = 0.0;
};

struct StreamRange {
  Extent extent;
  StreamId stream = 0;
};

// Requests of this kind that touch the extent fail, so many times.
struct Fault {
  Op op = Op::read;
  Extent extent;
  std::uint64_t times = 1;
};

// A request as the model saw it.
struct RecordedRequest {
  Nanos time;  // of the model
  Lba lba;
  Sectors sectors;
  StreamId stream = 0;
  Op op = Op::read;
  bool fua = false;
};

// When replies of one kind left, and when the model wanted them to.
struct ReplyTimes {
  host::LatencyHistogram lateness;       // of paced replies, in real time
  host::LatencyHistogram model_latency;  // of the same, in the model's time
};

struct LiveCounters {
  std::array<std::uint64_t, 4> replies{};  // by operation
  std::uint64_t errors = 0;                // replies that were errors
  std::uint64_t held = 0;                  // requests that waited for a place in the device's queue
  std::uint64_t store_errors = 0;
  std::uint64_t power_cuts = 0;
  std::uint64_t unpaced = 0;  // replies while the pace was not real
  std::uint64_t lost_records = 0;
  std::array<ReplyTimes, 4> times;  // by operation

  [[nodiscard]] ReplyTimes& times_of(Op op) { return times[static_cast<std::size_t>(op)]; }
};

// But for the histograms.
template <class V>
void count(V& v, const LiveCounters& c) {
  v("read_replies", c.replies[static_cast<std::size_t>(Op::read)]);
  v("write_replies", c.replies[static_cast<std::size_t>(Op::write)]);
  v("trim_replies", c.replies[static_cast<std::size_t>(Op::trim)]);
  v("flush_replies", c.replies[static_cast<std::size_t>(Op::flush)]);
  v("errors", c.errors);
  v("held", c.held);
  v("store_errors", c.store_errors);
  v("power_cuts", c.power_cuts);
  v("unpaced_replies", c.unpaced);
  v("lost_records", c.lost_records);
}

// What happens after a power cut: the device is back at once, or when power_on() says so.
enum class After : std::uint8_t { on, off };

struct PowerCut {
  std::int64_t doubtful_sectors = 0;
  std::int64_t changed_sectors = 0;
  std::uint64_t unanswered = 0;
};

class LiveDevice final : private Host {
 public:
  using MakeDevice = std::function<std::unique_ptr<DeviceModel>(Host&)>;
  static constexpr std::size_t kMostRecords = 1 << 22;

  // `visible` is what the host sees: the model's capacity, or less. Owns `store_fd`.
  LiveDevice(const MakeDevice& make_device, int store_fd, Bytes visible);
  ~LiveDevice();
  LiveDevice(const LiveDevice&) = delete;
  LiveDevice& operator=(const LiveDevice&) = delete;

  void start();
  // Ends the pacing thread. Nobody may wait for an answer any more, or they never get one.
  void stop();

  // Requests. The extents must lie in the visible part. Data moves before the call returns.
  void read(Bytes offset, std::span<std::byte> into, std::unique_ptr<Ticket> ticket);
  // `fua`: durable when it is answered.
  void write(Bytes offset, std::span<const std::byte> data, std::unique_ptr<Ticket> ticket,
             bool fua = false);
  void trim(const Extent& extent, std::unique_ptr<Ticket> ticket);
  void flush(std::unique_ptr<Ticket> ticket);

  // Control. Changing the pace waits until everything that was asked has been answered. Throws
  // OperatingError for virtual time on a disk, which may keep its answers back.
  void set_pace(Pace pace, std::int64_t slowdown, Nanos constant);
  void set_path_cost(Op op, const PathCost& cost);
  void set_streams(std::vector<StreamRange> ranges);
  void set_honest_flush(bool honest);
  // The pacing thread wakes up so much before it has to, and watches the clock. 0, where others
  // need the same processor: it only sleeps.
  void set_watch(Nanos ahead);
  void add_fault(const Fault& fault);
  void clear_faults();
  // Everything that is in flight fails, and volatile data is lost or not, as `seed` says. While the
  // device is off, every request fails, and so does one that began then and is answered later.
  PowerCut power_cut(std::uint64_t seed, After after);
  void power_on();
  // The model's state, when nothing is in flight, with what was written past it: that clears a
  // flash model's counters. With `then_record`, every request from that moment on is recorded.
  [[nodiscard]] std::vector<std::byte> save_model(bool then_record);
  // When nothing is in flight. Throws OperatingError for a state of another device; then this one
  // goes on as it was.
  void restore_model(std::span<const std::byte> saved);
  // Calls `see` with the model and the counters of one moment; it may reset the latter.
  using See = std::function<void(DeviceModel&, LiveCounters&, Nanos now)>;
  void look(const See& see);
  // Waits until nothing is in flight, ends the record, and looks. The records that nobody has taken
  // yet are still there.
  void end_record(const See& see);
  [[nodiscard]] std::vector<RecordedRequest> take_records();
  [[nodiscard]] Bytes visible() const { return visible_; }
  [[nodiscard]] int sync() { return store_.sync(); }
  // The model takes what the store holds for data from long ago, from the next change of pace on:
  // for a store that another process has written.
  void assume_stored();

 private:
  struct Pending {
    std::unique_ptr<Ticket> ticket;
    Request request;
    Nanos arrived;           // real
    std::uint64_t cuts = 0;  // power cuts before it touched any data
    int error = 0;
    std::uint64_t flush = 0;   // of the undo log: what its answer makes durable; 0: nothing
    bool lies = false;         // a flush that is none
    bool alone = false;        // its answer makes nothing durable but itself
    bool was_stopped = false;  // held because the device was being changed
    Nanos stopped = {};        // and for so long, real
    Nanos shifted = {};        // the model was asked so much after it arrived, real
    Nanos asked = {};          // the model, in its time
    Nanos due = {};            // real
  };
  struct Due {
    Nanos when;
    std::uint64_t order;
    Tag tag;
    bool operator>(const Due& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  using Lock = std::unique_lock<std::mutex>;
  static constexpr Nanos kNever{INT64_MAX};

  void done(Tag tag, Nanos when) override;
  void wake_at(Nanos when) override;

  [[nodiscard]] Pending begin(Op op, const Extent& extent, std::unique_ptr<Ticket> ticket) const;
  void overwrite(Pending& pending, const std::function<int()>& change);
  void sync_store(Pending& pending);
  [[nodiscard]] int change_undoably(Pending& pending, const std::function<int()>& change);
  [[nodiscard]] std::vector<Extent> worth_saving(const Request& request) const;
  void forget_durable();
  [[nodiscard]] int fault_of(Op op, const Extent& extent);
  [[nodiscard]] int checked(int error);

  void ask(Pending pending);
  void admit(Lock& lock, Pending pending, bool at_once);
  void admit_held(Lock& lock);
  void note_old_data(const Request& request);
  void record(const Pending& pending);
  void answer_due(Lock& lock);
  void answer(Lock& lock, Pending pending);
  void reply(Lock& lock, Pending pending);
  void settle(Lock& lock, Pending& pending);
  void make_durable(Pending& pending);
  [[nodiscard]] bool survives(const Pending& pending) const;
  [[nodiscard]] bool passes_by_the_model(const Pending& pending) const;
  [[nodiscard]] std::vector<Pending> take_unanswered();

  void pace();
  void watch_clock(Lock& lock, Nanos next);
  [[nodiscard]] Nanos next_event() const;
  void notify();
  void freeze(Lock& lock);
  void thaw(Lock& lock);
  template <class Change>
  void while_frozen(Lock& lock, const Change& change);
  void tell_old_data();
  void archive_model(Archive& archive, Nanos& now);

  [[nodiscard]] StreamId stream_of(Lba lba) const;
  [[nodiscard]] Nanos path_cost(const Request& request) const;
  [[nodiscard]] Nanos model_now(Nanos real);
  [[nodiscard]] Nanos wake_model();
  [[nodiscard]] Nanos frozen_now();

  Store store_;
  Bytes visible_;
  std::unique_ptr<DeviceModel> model_;

  // Order of locks: data before state.
  std::mutex data_mutex_;  // what is written, with what it undoes
  UndoLog undo_;

  // Changed under both locks, read under either or none.
  std::atomic<Pace> pace_{Pace::none};
  std::atomic<std::uint64_t> cuts_{0};
  std::atomic<bool> off_{false};

  std::mutex mutex_;  // everything below
  std::condition_variable changed_;
  std::condition_variable quiet_;
  ModelClock clock_;
  Nanos model_last_;
  Nanos constant_;
  std::array<PathCost, 4> path_cost_{};
  std::vector<StreamRange> streams_;
  std::vector<Fault> faults_;
  std::atomic<bool> has_faults_{false};
  std::atomic<bool> honest_flush_{true};
  std::vector<Pending> pending_;  // by tag
  std::vector<Tag> free_tags_;
  std::deque<Pending> held_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::uint64_t orders_ = 0;
  std::uint64_t in_flight_ = 0;            // held ones included
  bool frozen_ = false;                    // new requests are held until the state has been changed
  Nanos wake_due_ = kNever;                // real
  Nanos watch_{40'000};                    // see set_watch
  Nanos asleep_till_;                      // the pacing thread; 0 while it is awake
  std::atomic<std::int64_t> next_due_{0};  // what it watches the clock for; 0: it does not
  bool stopping_ = false;
  bool recording_ = false;
  std::vector<RecordedRequest> records_;
  ExtentSet old_data_;  // written while the pace was none
  LiveCounters counters_;
  std::thread pacer_;
};

}  // namespace flashlab::live
