// A host in virtual time: a device model, the block layer above it, cores, and processes as fibers.
//
// One event loop, one thread. The clock jumps from event to event; between two events a process's
// code runs and takes no virtual time except what it declares (compute). Where nothing else can
// happen before a process's next step, the step is taken at once, without the event queue and
// without switching stacks: a single process's run never pauses.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "base/cancel.hpp"
#include "base/device.hpp"
#include "host/block_layer.hpp"
#include "host/fiber.hpp"

namespace flashlab::host {

using Process = std::uint32_t;

// Hears of the end of what it submitted, inside the event loop: it must not pause.
class IoOwner {
 public:
  virtual void io_done(std::uint32_t cookie) = 0;

 protected:
  ~IoOwner() = default;
};

class Machine final : private Host, private BlockLayerUser {
 public:
  using MakeDevice = std::function<std::unique_ptr<DeviceModel>(Host&)>;
  using Body = std::function<void(Process)>;

  Machine(const MakeDevice& make_device, const HostParameters& host);
  ~Machine();

  // Runs one body per process side by side until all have ended. The first error of any of them
  // ends the others and is thrown from here; after that the machine cannot be used again.
  void run(std::uint32_t processes, const Body& body, const Cancel& cancel);

  [[nodiscard]] DeviceModel& device() { return *device_; }
  [[nodiscard]] const DeviceModel& device() const { return *device_; }
  [[nodiscard]] const BlockLayer& block_layer() const { return block_layer_; }
  [[nodiscard]] const HostParameters& parameters() const { return host_; }
  [[nodiscard]] Nanos now() const { return now_; }

  // Anybody, at any time: starts a request. `who` hears of its end, with `cookie`.
  void submit(Process on_behalf_of, const Request& request, IoOwner& who, std::uint32_t cookie);
  // From now on `sees` is shown every request as it is submitted; nothing: nobody is.
  void watch(std::function<void(const Request&, Nanos)> sees) { sees_ = std::move(sees); }

  // The rest is for the running process.

  // Competes for the cores: begins when one is free, and is slower while processes share cores.
  void compute(Process self, Nanos cpu);
  void sleep_until(Process self, Nanos when);
  // Returns once `ready()` holds. Whoever makes it hold calls wake(), which may also come for
  // nothing.
  template <class Ready>
  void wait(Process self, const Ready& ready) {
    while (!ready()) {
      if (next_event_needs_no_switch()) {
        handle(take_event());
      } else {
        waiting_[self] = true;
        fibers_[self]->pause();
      }
    }
  }
  void wake(Process process);

 private:
  struct Unwind;
  enum class EventKind : std::uint8_t { request_done, device_wake, scheduler_timer, process_ready };
  struct Event {
    Nanos when;
    std::uint64_t order;  // events of one time happen in the order in which they were posted
    EventKind kind;
    std::uint32_t id;
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  void done(Tag tag, Nanos when) override;
  void wake_at(Nanos when) override;
  void io_done(std::uint32_t io, Nanos now) override;
  void scheduler_timer_at(Nanos when) override;

  void post(Nanos when, EventKind kind, std::uint32_t id);
  Event take_event();
  void handle(const Event& event);
  [[nodiscard]] bool next_event_needs_no_switch() const;
  [[nodiscard]] Nanos stretched(Nanos cpu, Nanos begin) const;

  struct Io {
    IoOwner* who = nullptr;
    std::uint32_t cookie = 0;
  };

  std::unique_ptr<DeviceModel> device_;
  HostParameters host_;
  BlockLayer block_layer_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  Nanos now_;
  Nanos device_wake_;
  Nanos scheduler_timer_;
  std::vector<Io> ios_;
  std::vector<std::uint32_t> free_ios_;
  std::vector<Nanos> thread_free_;  // by hardware thread
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<char> waiting_;  // by process: paused in wait(), and nobody has called it yet
  std::uint32_t processes_left_ = 0;
  std::uint64_t events_taken_ = 0;
  const Cancel* cancel_ = nullptr;
  std::function<void(const Request&, Nanos)> sees_;
  bool usable_ = true;
};

}  // namespace flashlab::host
