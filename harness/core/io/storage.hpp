// What an engine that does its own I/O sees: a device, and per user a channel to it.
//
// The same engine code runs over a file or a block device (file.hpp), over memory (memory.hpp) and
// over a device model in virtual time (virtual.hpp). Contract:
//
//  - A user's channel is used by that user's body only, and only inside Storage::run.
//  - submit() starts one transfer; its buffer is the channel's until the transfer's tag comes back
//    from wait(). Transfers of one channel may complete in any order. The caller keeps at most
//    `depth` of them outstanding, the number that it asked for in run().
//  - Offsets, sizes and buffer addresses are multiples of block().
//  - Errors of the device arrive as OperatingError from submit() or wait().
//  - compute() says that the user has just spent CPU time which the clock of this storage did not
//    see. A real clock has seen it; virtual time advances by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/cancel.hpp"
#include "base/device.hpp"
#include "base/units.hpp"

namespace flashlab::io {

struct Transfer {
  Op op = Op::read;
  Bytes offset;
  std::span<std::byte> buffer;
  Tag tag = 0;
};

class Channel {
 public:
  virtual ~Channel() = default;
  // The memory that all buffers will lie in, for storages that can prepare it. Must stay until the
  // channel ends. At most once.
  virtual void announce(std::span<std::byte> /*memory*/) {}
  virtual void submit(const Transfer& transfer) = 0;
  virtual Tag wait() = 0;
  // Returns when the storage has done with all buffers, whatever became of the transfers: what an
  // error's unwinding calls before it frees them. Never throws.
  virtual void drain() noexcept = 0;
  [[nodiscard]] virtual Nanos now() = 0;
  virtual void compute(Nanos cpu) = 0;
};

class Storage {
 public:
  using Body = std::function<void(std::uint32_t user, Channel& channel)>;

  virtual ~Storage() = default;
  [[nodiscard]] virtual Bytes capacity() const = 0;
  [[nodiscard]] virtual Bytes block() const = 0;
  // Without contents transfers take their time and leave their buffers as they are.
  [[nodiscard]] virtual bool has_contents() const { return true; }
  // Runs one body per user side by side, each with a channel of the given depth, and returns when
  // all have ended. The first error of any of them ends the others and is thrown from here.
  virtual void run(std::uint32_t users, std::uint32_t depth, const Body& body,
                   const Cancel& cancel) = 0;
};

}  // namespace flashlab::io
