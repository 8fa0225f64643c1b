// The write buffer's pages, asked for one by one, beside a look through all of them.
#include <gtest/gtest.h>

#include <set>

#include "base/prng.hpp"
#include "ssd_world.hpp"

namespace flashlab::flash {
namespace test_nand {

// Programs pages block by block, on all dies in turn, and asks at each step for some of them.
class Buffered {
 public:
  explicit Buffered(const Geometry& geometry)
      : geometry_(geometry), map_(geometry), nand_(geometry, parameters().nand) {}

  void program() {
    const Die die = programmed_ % geometry_.dies();
    const std::uint32_t nth = programmed_ / geometry_.dies();
    const std::uint32_t blocks = geometry_.lpns() / geometry_.dies() / geometry_.slots_per_block();
    const Block block =
        die * geometry_.blocks_per_group() + nth / geometry_.pages_per_block() % blocks;
    const Page page = block * geometry_.pages_per_block() + nth % geometry_.pages_per_block();
    const Slot first = page * geometry_.slots_per_page();
    for (Slot slot = first; slot < first + geometry_.slots_per_page(); ++slot) {
      if (!map_.is_valid(slot)) map_.bind(bound_++, slot, block);
    }
    nand_.set_ready(now_);
    nand_.program(page, die, Work::host);
    ++programmed_;
  }
  void pass(Nanos time) {
    now_ += time;
    nand_.present(now_);
    nand_.catch_up(now_ + 1_ns);
  }
  // Once everything that could be dated by now has been.
  std::set<Page> unprogrammed() {
    std::vector<Lpn> lpns;
    nand_.unprogrammed(now_, map_, lpns);
    std::set<Page> pages;
    for (const Lpn lpn : lpns) pages.insert(geometry_.page_of(map_.find(lpn)));
    return pages;
  }
  void expect_found(Prng& random) {
    const std::set<Page> waiting = unprogrammed();
    for (int i = 0; i < 50; ++i) {
      const auto page =
          static_cast<Page>(random.below(geometry_.slots() / geometry_.slots_per_page()));
      const Block block = geometry_.block_of(page * geometry_.slots_per_page());
      ASSERT_EQ(nand_.holds(page, block, now_), waiting.contains(page)) << "page " << page;
    }
  }
  std::vector<std::byte> saved() {
    std::vector<std::byte> bytes;
    Archive a = Archive::saving(bytes);
    nand_.archive(a);
    return bytes;
  }
  void restore(const std::vector<std::byte>& bytes) {
    Archive a = Archive::restoring(bytes);
    nand_.archive(a);
  }
  Nanos drained() { return nand_.drain(now_); }
  void slow_first_die() { nand_.slow(0, 5000, now_); }
  void power_cut() { nand_.restart(now_); }
  [[nodiscard]] Nanos now() const { return now_; }

 private:
  Geometry geometry_;
  PageMap map_;
  Nand nand_;
  std::uint32_t programmed_ = 0;
  Lpn bound_ = 0;
  Nanos now_;
};

Geometry small_drive() { return Geometry({64_MiB, 0.6, 16_KiB, 4_KiB, 1, 8, 2, 1, "per_die"}); }

TEST(Nand, FindsPagesInABufferOfAnySize) {
  Prng random(1);
  // Few pages at first, which are looked through; then thousands, which are found by a hash. Blocks
  // come round again while pages of their earlier life are still in the queue.
  for (const std::uint32_t pages : {30U, 700U, 5000U, 20000U}) {
    Buffered buffer(small_drive());
    for (std::uint32_t i = 0; i < pages; ++i) {
      buffer.program();
      if (i % (pages / 10) == 0) buffer.expect_found(random);
    }
    for (int round = 0; round < 12; ++round) {
      buffer.pass(Nanos{static_cast<std::int64_t>(random.below(pages * 4'000ULL))});
      buffer.expect_found(random);
      for (int i = 0; i < 20; ++i) buffer.program();
      buffer.expect_found(random);
    }
  }
}

TEST(Nand, FindsThemAgainAfterRestoring) {
  Prng random(2);
  Buffered buffer(small_drive());
  for (int i = 0; i < 5000; ++i) buffer.program();
  buffer.pass(500_ms);
  const std::vector<std::byte> state = buffer.saved();
  const Nanos end = buffer.drained();
  buffer.power_cut();
  buffer.expect_found(random);
  EXPECT_EQ(buffer.drained(), buffer.now());
  buffer.restore(state);
  buffer.expect_found(random);
  EXPECT_EQ(buffer.drained(), end);
}

TEST(Nand, IsDrainedWhenTheLastPageIs) {
  Buffered buffer(small_drive());
  buffer.slow_first_die();  // what came last is not what ends last
  Nanos last;
  for (int i = 0; i < 3000; ++i) {
    buffer.program();
    if (i % 7 != 0) continue;
    const Nanos end = buffer.drained();
    EXPECT_GE(end, last);
    last = end;
    if (i % 35 == 0) buffer.pass(1_ms);
  }
  last = buffer.drained();
  buffer.pass(last - buffer.now());
  EXPECT_TRUE(buffer.unprogrammed().empty());
  EXPECT_EQ(buffer.drained(), last);
}

}  // namespace test_nand
}  // namespace flashlab::flash
