// A live device as a block device of the kernel's own driver for those that a process serves.
//
// ublk (Documentation/block/ublk.rst of Linux; 6.4 or newer, which numbers its commands as ioctls
// do). A device is added, told its queue's limits, served by one thread through an io_uring of its
// own, and started; what the block layer asks arrives as it is: FUA, flushes, discards and WRITE
// ZEROES are not each other. Translates, decides nothing. The driver keeps 64 bits of ours for each
// device; these are its mark, and all that another process knows it by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "live/device.hpp"

namespace flashlab::live {

// What the block layer is told. `depth`: requests at a time. `largest`: of one, a multiple of
// 4 KiB. `discard`: the most that one command frees; 0: it knows none. `recoverable`: if the
// process that serves it dies, the device stays, and whoever asks it waits for another process.
struct UblkLimits {
  bool rotational = false;
  std::uint32_t depth = 1;
  Bytes largest;
  Bytes discard;
  bool recoverable = false;
};

class Ublk {
 public:
  // Makes the block device. Throws OperatingError (target) where the kernel or the permissions do
  // not allow it, or where this build has no ublk; then nothing is left in the kernel.
  Ublk(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits);
  // Serves the recoverable device with that number and mark, whose process has died, with the
  // limits that it was made with. What was not answered is asked for again. Throws OperatingError
  // (target) if there is none, or if it has not let go of the dead process within some seconds; if
  // it cannot be served after that it is removed.
  Ublk(LiveDevice& device, std::uint64_t mark, const UblkLimits& limits, int number);
  // Takes it from the host, whoever still uses it, and removes it.
  ~Ublk();
  Ublk(const Ublk&) = delete;
  Ublk& operator=(const Ublk&) = delete;

  // /dev/ublkb<number> is the block device.
  [[nodiscard]] int number() const;
  // Takes it from the host: what is asked of it from now on fails, and what was asked has been
  // answered when this returns.
  void take();

  [[nodiscard]] static bool available();

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

// The mark of the device that has that number, if there is one. Throws OperatingError (target) if
// the kernel does not say.
std::optional<std::uint64_t> ublk_mark(int number);
// Whether the device with that number stays when its process dies, with everybody who asks it
// waiting. Throws as above.
bool ublk_is_recoverable(int number);
// Of a device with that number and that mark: takes it from the host, or removes it, which ends it
// in the kernel as soon as nobody has it open. Does nothing if there is no such device. Throws
// OperatingError (target).
void ublk_take(int number, std::uint64_t mark);
void ublk_remove(int number, std::uint64_t mark);

}  // namespace flashlab::live
