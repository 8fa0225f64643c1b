// The contract between a device model and the world (docs/architecture.md, "Device model").
//
// A model sees the world through three calls and never reads a clock. `submit` and `wake` come in
// with the present time; `done` and `wake_at` go out. Time never runs backwards between calls.
//
//  - The model keeps a timeline of its own: an operation starts when its resource is free and its
//    request has arrived, never when an event loop happens to run. A call that comes late computes
//    the times that a punctual one would have.
//  - `done(tag, when)` is called exactly once per submitted tag, from inside submit(), wake() or
//    in_doubt().
//    `when` may lie in the future (the answer is then already certain) or, after a late wake(), in
//    the past; it is never before the request's submission.
//  - `wake_at(when)` replaces the previous wish. The model asks again in every call in which it
//    still needs one.
//  - wake() and in_doubt() may come at any time and change no decision: whoever asks twice, or
//    never, sees the same answers, counters and state of the medium. Counters are those of a moment
//    after a wake() at that moment.
//  - Two instances share nothing. Whoever calls an instance from several threads holds a lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/archive.hpp"
#include "base/extent.hpp"

namespace flashlab {

enum class Op : std::uint8_t { read, write, trim, flush };

using Tag = std::uint32_t;
using StreamId = std::uint16_t;

// The sectors [lba, lba + sectors). A flush has none. A TRIM of several ranges in one command names
// them in `ranges` (valid during submit() only), and its first one in `lba` and `sectors` too.
struct Request {
  Op op = Op::read;
  Lba lba;
  Sectors sectors;
  bool fua = false;
  StreamId stream = 0;
  std::span<const Extent> ranges = {};
};

class Host {
 public:
  virtual void done(Tag tag, Nanos when) = 0;
  virtual void wake_at(Nanos when) = 0;

 protected:
  ~Host() = default;
};

// What every device can count; models add counters of their own.
struct DeviceCounters {
  std::uint64_t read_ios = 0;
  std::uint64_t write_ios = 0;
  std::uint64_t trim_ios = 0;
  std::uint64_t flush_ios = 0;
  Bytes read_bytes;
  Bytes write_bytes;
  Bytes trim_bytes;
};

template <class V>
void count(V& v, const DeviceCounters& c) {
  v("read_ios", c.read_ios);
  v("write_ios", c.write_ios);
  v("trim_ios", c.trim_ios);
  v("flush_ios", c.flush_ios);
  v("read_bytes", c.read_bytes);
  v("write_bytes", c.write_bytes);
  v("trim_bytes", c.trim_bytes);
}

class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  virtual void submit(Tag tag, const Request& request, Nanos now) = 0;
  virtual void wake(Nanos now) = 0;
  [[nodiscard]] virtual Bytes capacity() const = 0;
  [[nodiscard]] virtual bool rotational() const = 0;
  // Whether what was answered survives a power cut, without a flush.
  [[nodiscard]] virtual bool durable_when_answered() const { return false; }
  // Whether a write with FUA is answered when everything before it is durable, too.
  [[nodiscard]] virtual bool flushes_on_fua() const { return false; }
  // Commands that the device accepts at once; the host holds back the rest.
  [[nodiscard]] virtual std::uint32_t queue_depth() const = 0;
  // A hint that this request comes soon. Changes nothing but the speed of the simulation.
  virtual void expect(const Request& /*request*/) {}
  // The same once more, when it is only a few requests away: what the first hint has fetched tells
  // what else will be touched.
  virtual void expect_next(const Request& /*request*/) {}
  // Data has been there since long ago: it was written, and that cost nothing and counts nowhere.
  virtual void assume_written(const Extent& /*extent*/) {}
  // What a power cut at `now` would leave in doubt, ascending and disjoint: each logical block
  // there may hold, independently, its last content or an earlier one that a later write had not
  // made durable (flush, FUA). Everything else holds its last content. Else the same as wake().
  virtual std::vector<Extent> in_doubt(Nanos now) = 0;
  // The power fails at `now`, and comes back. Requests in flight are never answered, and the wish
  // for a wake-up is void; volatile caches are empty. Returns what is in doubt.
  std::vector<Extent> power_cut(Nanos now) {
    std::vector<Extent> doubt = in_doubt(now);
    restart(now);
    return doubt;
  }
  // Saves or restores all state but the parameters, which must be the same.
  virtual void archive(Archive& a) = 0;

 protected:
  // Power on: nothing is in RAM, nothing under way.
  virtual void restart(Nanos now) = 0;
};

}  // namespace flashlab
