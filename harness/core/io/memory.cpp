#include "io/memory.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "io/at_once.hpp"

namespace flashlab::io {

namespace {

class MemoryChannel final : public AtOnceChannel {
 public:
  MemoryChannel(std::span<std::byte> data, Bytes block, std::uint32_t depth, const Cancel& cancel)
      : data_(data), block_(block), depth_(depth), cancel_(cancel) {}

  void submit(const Transfer& t) override {
    cancel_.check();
    const auto offset = static_cast<std::size_t>(t.offset.count());
    FLASHLAB_CHECK(unreported() < depth_);
    FLASHLAB_CHECK(t.offset % block_ == Bytes{0} &&
                   t.buffer.size() % static_cast<std::size_t>(block_.count()) == 0);
    FLASHLAB_CHECK(offset + t.buffer.size() <= data_.size());
    const std::span<std::byte> here = data_.subspan(offset, t.buffer.size());
    if (t.op == Op::write) {
      std::copy(t.buffer.begin(), t.buffer.end(), here.begin());
    } else {
      std::copy(here.begin(), here.end(), t.buffer.begin());
    }
    done(t.tag);
  }

  void drain() noexcept override { forget(); }

  Nanos now() override {
    using std::chrono::nanoseconds;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Nanos{std::chrono::duration_cast<nanoseconds>(since).count()};
  }

 private:
  std::span<std::byte> data_;
  Bytes block_;
  std::uint32_t depth_;
  const Cancel& cancel_;
};

}  // namespace

MemoryStorage::MemoryStorage(Bytes capacity, Bytes block)
    : block_(block), data_(static_cast<std::size_t>(capacity.count())) {
  require(block.count() >= 512 && capacity % block == Bytes{0},
          "memory storage: capacity must be a multiple of the block size");
}

void MemoryStorage::run(std::uint32_t users, std::uint32_t depth, const Body& body,
                        const Cancel& cancel) {
  for (std::uint32_t user = 0; user < users; ++user) {
    MemoryChannel channel(data_, block_, depth, cancel);
    body(user, channel);
  }
}

}  // namespace flashlab::io
