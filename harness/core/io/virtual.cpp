#include "io/virtual.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace flashlab::io {

namespace {

constexpr Nanos kNever{INT64_MAX};

}  // namespace

class VirtualStorage::VirtualChannel final : public Channel {
 public:
  VirtualChannel(VirtualStorage& storage, std::uint32_t user, std::uint32_t depth)
      : storage_(storage), user_(user), depth_(depth) {}

  void submit(const Transfer& t) override {
    FLASHLAB_CHECK(outstanding_ < depth_);
    FLASHLAB_CHECK(t.offset >= Bytes{0} &&
                   t.offset + Bytes{static_cast<std::int64_t>(t.buffer.size())} <=
                       storage_.capacity());
    if (t.op == Op::write) {
      storage_.content_.write(t.offset, t.buffer);
    } else {
      storage_.content_.read(t.offset, t.buffer);
    }
    settle(storage_.host_.submit_cpu);
    ++outstanding_;
    const Request request{t.op, to_lba(t.offset),
                          to_sectors(Bytes{static_cast<std::int64_t>(t.buffer.size())})};
    storage_.block_layer_.submit(user_, storage_.take_io(user_, t.tag), request, storage_.now_);
  }

  Tag wait() override {
    FLASHLAB_CHECK(outstanding_ > 0);
    settle(Nanos{0});
    while (completed_.empty()) {
      if (storage_.next_event_needs_no_switch()) {
        storage_.handle(storage_.take_event());
      } else {
        waiting_ = true;
        storage_.fibers_[user_]->pause();
      }
    }
    const Tag tag = completed_.front();
    completed_.pop_front();
    --outstanding_;
    owed_ += storage_.host_.complete_cpu;
    return tag;
  }

  void drain() noexcept override {}  // data moves in submit(), never behind the user's back

  Nanos now() override {
    settle(Nanos{0});
    return storage_.now_;
  }

  void compute(Nanos cpu) override { owed_ += cpu; }

  // Returns whether the user has to be woken: it sleeps in wait(), and nobody has called it yet.
  bool complete(Tag tag) {
    completed_.push_back(tag);
    return std::exchange(waiting_, false);
  }

 private:
  void settle(Nanos more) {
    const Nanos cpu = owed_ + more;
    owed_ = Nanos{0};
    if (cpu > Nanos{0}) storage_.spend_cpu(cpu, user_);
  }

  VirtualStorage& storage_;
  std::uint32_t user_;
  std::uint32_t depth_;
  std::uint32_t outstanding_ = 0;
  bool waiting_ = false;
  Nanos owed_;
  std::deque<Tag> completed_;
};

// The bodies' stacks must not outlive what they refer to.
struct VirtualStorage::Unwind {
  VirtualStorage& storage;
  ~Unwind() {
    storage.fibers_.clear();
    storage.channels_.clear();
  }
};

VirtualStorage::VirtualStorage(const MakeDevice& make_device, const host::HostParameters& host,
                               Bytes cell, Bytes kept, std::shared_ptr<ChunkPool> pool)
    : device_(make_device(*this)),
      host_(host),
      block_layer_(host, *device_, *this),
      content_(device_->capacity(), cell, kept, std::move(pool)),
      device_wake_(kNever),
      scheduler_timer_(kNever),
      core_free_(static_cast<std::size_t>(host.cores)) {}

VirtualStorage::~VirtualStorage() = default;

void VirtualStorage::run(std::uint32_t users, std::uint32_t depth, const Body& body,
                         const Cancel& cancel) {
  require(users >= 1 && users <= 1024, "users: must lie between 1 and 1024");
  require(depth >= 1, "queue_depth: must be at least 1");
  FLASHLAB_CHECK(usable_);
  usable_ = false;  // until the run has ended well: a failed one leaves requests in the device
  cancel_ = &cancel;
  for (std::uint32_t user = 0; user < users; ++user) {
    channels_.push_back(std::make_unique<VirtualChannel>(*this, user, depth));
    fibers_.push_back(
        std::make_unique<Fiber>([this, user, &body] { body(user, *channels_[user]); }));
    post(now_, EventKind::user_ready, user);
  }
  users_left_ = users;
  const Unwind unwind{*this};
  while (users_left_ > 0) {
    FLASHLAB_CHECK(!events_.empty());  // else a user waits for something that never comes
    handle(take_event());
  }
  usable_ = true;
}

bool VirtualStorage::next_event_needs_no_switch() const {
  return !events_.empty() && events_.top().kind != EventKind::user_ready;
}

VirtualStorage::Event VirtualStorage::take_event() {
  if ((++events_taken_ & 0xfff) == 0) cancel_->check();
  const Event event = events_.top();
  events_.pop();
  FLASHLAB_CHECK(event.when >= now_);
  now_ = event.when;
  return event;
}

void VirtualStorage::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::request_done:
      return block_layer_.request_done(event.id, now_);
    case EventKind::device_wake:
      if (event.when != device_wake_) return;  // a later wish has replaced this one
      device_wake_ = kNever;
      return device_->wake(now_);
    case EventKind::scheduler_timer:
      if (event.when != scheduler_timer_) return;
      scheduler_timer_ = kNever;
      return block_layer_.timer(now_);
    case EventKind::user_ready:
      fibers_[event.id]->resume();
      if (fibers_[event.id]->ended()) --users_left_;
      return;
  }
}

void VirtualStorage::done(Tag tag, Nanos when) {
  post(std::max(when, now_), EventKind::request_done, tag);
}

void VirtualStorage::mount(Bytes offset, std::span<const std::byte> cells) {
  content_.mount(offset, cells);
  const Bytes length = content_.bytes_of(cells.size());
  device_->assume_written({to_lba(offset), to_lba(offset + length)});
}

void VirtualStorage::wake_at(Nanos when) {
  device_wake_ = std::max(when, now_);
  post(device_wake_, EventKind::device_wake, 0);
}

void VirtualStorage::scheduler_timer_at(Nanos when) {
  if (when == scheduler_timer_) return;
  scheduler_timer_ = std::max(when, now_);
  post(scheduler_timer_, EventKind::scheduler_timer, 0);
}

void VirtualStorage::io_done(std::uint32_t io, Nanos now) {
  const Io finished = ios_[io];
  free_ios_.push_back(io);
  if (channels_[finished.user]->complete(finished.tag)) {
    post(now, EventKind::user_ready, finished.user);
  }
}

std::uint32_t VirtualStorage::take_io(std::uint32_t user, Tag tag) {
  if (free_ios_.empty()) {
    free_ios_.push_back(static_cast<std::uint32_t>(ios_.size()));
    ios_.emplace_back();
  }
  const std::uint32_t io = free_ios_.back();
  free_ios_.pop_back();
  ios_[io] = {user, tag};
  return io;
}

void VirtualStorage::post(Nanos when, EventKind kind, std::uint32_t id) {
  events_.push({when, order_++, kind, id});
}

void VirtualStorage::spend_cpu(Nanos cpu, std::uint32_t user) {
  auto core = std::min_element(core_free_.begin(), core_free_.end());
  *core = std::max(*core, now_) + cpu;
  sleep_until(*core, user);
}

void VirtualStorage::sleep_until(Nanos when, std::uint32_t user) {
  while (!events_.empty() && events_.top().when <= when && next_event_needs_no_switch()) {
    handle(take_event());
  }
  if (events_.empty() || events_.top().when > when) {
    now_ = when;
    return;
  }
  post(when, EventKind::user_ready, user);
  fibers_[user]->pause();
}

}  // namespace flashlab::io
