#include "io/virtual.hpp"

#include <deque>
#include <utility>

#include "base/check.hpp"

namespace flashlab::io {

class VirtualStorage::VirtualChannel final : public Channel, private host::IoOwner {
 public:
  VirtualChannel(VirtualStorage& storage, std::uint32_t user, std::uint32_t depth)
      : machine_(storage.machine_),
        content_(storage.content_),
        has_contents_(storage.has_contents_),
        user_(user),
        depth_(depth) {}

  void submit(const Transfer& t) override {
    FLASHLAB_CHECK(outstanding_ < depth_);
    FLASHLAB_CHECK(t.offset >= Bytes{0} &&
                   t.offset + Bytes{static_cast<std::int64_t>(t.buffer.size())} <=
                       machine_.device().capacity());
    if (has_contents_) move(t);
    settle(machine_.parameters().submit_cpu);
    ++outstanding_;
    const Request request{t.op, to_lba(t.offset),
                          to_sectors(Bytes{static_cast<std::int64_t>(t.buffer.size())})};
    machine_.submit(user_, request, *this, t.tag);
  }

  Tag wait() override {
    FLASHLAB_CHECK(outstanding_ > 0);
    settle(Nanos{0});
    machine_.wait(user_, [this] { return !completed_.empty(); });
    const Tag tag = completed_.front();
    completed_.pop_front();
    --outstanding_;
    owed_ += machine_.parameters().complete_cpu;
    return tag;
  }

  void drain() noexcept override {}  // data moves in submit(), never behind the user's back

  Nanos now() override {
    settle(Nanos{0});
    return machine_.now();
  }

  void compute(Nanos cpu) override { owed_ += cpu; }

 private:
  void move(const Transfer& t) {
    if (t.op == Op::write) {
      content_.write(t.offset, t.buffer);
    } else {
      content_.read(t.offset, t.buffer);
    }
  }

  void io_done(std::uint32_t cookie) override {
    completed_.push_back(cookie);
    machine_.wake(user_);
  }

  void settle(Nanos more) {
    const Nanos cpu = owed_ + more;
    owed_ = Nanos{0};
    if (cpu > Nanos{0}) machine_.compute(user_, cpu);
  }

  host::Machine& machine_;
  ContentStore& content_;
  bool has_contents_;
  std::uint32_t user_;
  std::uint32_t depth_;
  std::uint32_t outstanding_ = 0;
  Nanos owed_;
  std::deque<Tag> completed_;
};

VirtualStorage::VirtualStorage(const MakeDevice& make_device, const host::HostParameters& host,
                               Bytes cell, Bytes kept, std::shared_ptr<ChunkPool> pool,
                               bool has_contents)
    : machine_(make_device, host),
      content_(capacity(), cell, kept, std::move(pool)),
      has_contents_(has_contents) {}

VirtualStorage::~VirtualStorage() = default;

void VirtualStorage::run(std::uint32_t users, std::uint32_t depth, const Body& body,
                         const Cancel& cancel) {
  require(users >= 1 && users <= 1024, "users: must lie between 1 and 1024");
  require(depth >= 1, "queue_depth: must be at least 1");
  // The channels outlive the processes, whatever ends them: the machine unwinds these itself.
  std::vector<std::unique_ptr<VirtualChannel>> channels;
  for (std::uint32_t user = 0; user < users; ++user) {
    channels.push_back(std::make_unique<VirtualChannel>(*this, user, depth));
  }
  machine_.run(users, [&](host::Process user) { body(user, *channels[user]); }, cancel);
}

void VirtualStorage::mount(Bytes offset, std::span<const std::byte> cells) {
  content_.mount(offset, cells);
  const Bytes length = content_.bytes_of(cells.size());
  machine_.device().assume_written({to_lba(offset), to_lba(offset + length)});
}

}  // namespace flashlab::io
