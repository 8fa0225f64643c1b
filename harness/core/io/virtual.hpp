// Storage in virtual time: a device model, the block layer above it, and the users' fibers.
//
// One event loop, one thread. The clock jumps from event to event; between two events a user's code
// runs and takes no virtual time except what it declares (Channel::compute) and what the host
// spends per transfer. Where nothing else can happen before a user's next step, the step is taken
// at once, without the event queue and without switching stacks: a single user's run never pauses.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "base/device.hpp"
#include "host/block_layer.hpp"
#include "io/content_store.hpp"
#include "io/fiber.hpp"
#include "io/storage.hpp"

namespace flashlab::io {

class VirtualStorage final : public Storage, private Host, private host::BlockLayerUser {
 public:
  using MakeDevice = std::function<std::unique_ptr<DeviceModel>(Host&)>;

  VirtualStorage(const MakeDevice& make_device, const host::HostParameters& host, Bytes cell,
                 Bytes kept, std::shared_ptr<ChunkPool> pool);
  ~VirtualStorage() override;

  [[nodiscard]] Bytes capacity() const override { return device_->capacity(); }
  [[nodiscard]] Bytes block() const override { return Bytes{512}; }
  void run(std::uint32_t users, std::uint32_t depth, const Body& body,
           const Cancel& cancel) override;

  // Puts prepared cells on the device, as if they had been written long ago.
  void mount(Bytes offset, std::span<const std::byte> cells);
  [[nodiscard]] ContentStore& content() { return content_; }
  [[nodiscard]] const DeviceModel& device() const { return *device_; }
  [[nodiscard]] const host::BlockLayer& block_layer() const { return block_layer_; }
  [[nodiscard]] Nanos now() const { return now_; }

 private:
  class VirtualChannel;
  struct Unwind;
  enum class EventKind : std::uint8_t { request_done, device_wake, scheduler_timer, user_ready };
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
  std::uint32_t take_io(std::uint32_t user, Tag tag);
  // The calling user's code continues at `when`.
  void sleep_until(Nanos when, std::uint32_t user);
  void spend_cpu(Nanos cpu, std::uint32_t user);
  [[nodiscard]] bool next_event_needs_no_switch() const;

  struct Io {
    std::uint32_t user = 0;
    Tag tag = 0;
  };

  std::unique_ptr<DeviceModel> device_;
  host::HostParameters host_;
  host::BlockLayer block_layer_;
  ContentStore content_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  Nanos now_;
  Nanos device_wake_;
  Nanos scheduler_timer_;
  std::vector<Io> ios_;
  std::vector<std::uint32_t> free_ios_;
  std::vector<Nanos> core_free_;
  std::vector<std::unique_ptr<VirtualChannel>> channels_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::uint32_t users_left_ = 0;
  std::uint64_t events_taken_ = 0;
  const Cancel* cancel_ = nullptr;
  bool usable_ = true;
};

}  // namespace flashlab::io
