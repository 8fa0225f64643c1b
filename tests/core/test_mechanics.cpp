#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "disk/mechanics.hpp"

// Command by command, the model is compared with an oracle in tests/devices/test_disk_reference.py.
// Here is what the documentation promises in words.
namespace flashlab::disk {
namespace test_mechanics {

using namespace literals;

constexpr SeekParameters kSeek{1_ms, 8_ms, 16_ms, 800_us, 200_us};

Mechanics mechanics() {
  const GeometryParameters geometry{
      Bytes{1'000'000'000},        RevolutionsPerMinute{7200}, 2,      4,
      BytesPerSecond{100'000'000}, BytesPerSecond{50'000'000}, 800_us, 1_ms};
  return {geometry, kSeek, 123_us};
}

std::int64_t sectors(const Mechanics& m) { return to_sectors(m.geometry().capacity()).count(); }

TEST(Mechanics, SeeksRunThroughThePublishedPoints) {
  const Mechanics m = mechanics();
  const std::int64_t full = m.geometry().cylinders() - 1;
  EXPECT_EQ(m.seek_time(0), Nanos{0});
  EXPECT_EQ(m.seek_time(1), kSeek.track_to_track);
  EXPECT_EQ(m.seek_time(full / 3), kSeek.average);
  EXPECT_EQ(m.seek_time(full), kSeek.full_stroke);
  for (std::int64_t d = 1; d < full; ++d) EXPECT_LE(m.seek_time(d), m.seek_time(d + 1));
}

TEST(Mechanics, ShortSeeksGrowLikeTheSquareRoot) {
  const Mechanics m = mechanics();
  const std::int64_t third = (m.geometry().cylinders() - 1) / 3;
  const Nanos quarter = m.seek_time(1 + (third - 1) / 4) - kSeek.track_to_track;
  const Nanos half_rise = (kSeek.average - kSeek.track_to_track) / 2;
  EXPECT_NEAR(static_cast<double>(quarter.count()), static_cast<double>(half_rise.count()), 2e4);
}

// The skews lose exactly the switching time: the next track's first sector is just arriving.
TEST(Mechanics, ASequentialTransferNeverWaitsForTheNextTrack) {
  const Mechanics m = mechanics();
  for (std::int64_t track = 0; track < 200; ++track) {
    const Lba next = m.geometry().first_lba(track + 1);
    const Lba last{next.index() - 1};
    const Nanos end = m.access({track, 0_ns}, 5_ms, last, Sectors{1}, false).end;
    const Nanos onwards = m.positioned({track, end}, end, next, false);
    EXPECT_NEAR(static_cast<double>((onwards - end).count()),
                static_cast<double>(m.geometry().switch_after(track).count()), 2.0);
  }
}

TEST(Mechanics, OnlyAWriteOnAnotherTrackSettles) {
  const Mechanics m = mechanics();
  const Lba far = m.geometry().first_lba(101);
  int later = 0;
  for (int i = 0; i < 100; ++i) {
    const Nanos start = i * 83_us;
    EXPECT_EQ(m.positioned({101, 0_ns}, start, far, true),
              m.positioned({101, 0_ns}, start, far, false));
    const Nanos wait =
        m.positioned({3, 0_ns}, start, far, true) - m.positioned({3, 0_ns}, start, far, false);
    EXPECT_TRUE(wait == Nanos{0} || wait == m.geometry().revolution());
    later += wait > Nanos{0} ? 1 : 0;
  }
  EXPECT_NEAR(later, 2.4, 1.5);  // 200 us of 8333 us
}

TEST(Mechanics, WhereAStreamIsAgreesWithWhenItEnds) {
  const Mechanics m = mechanics();
  Prng random(5);
  for (int i = 0; i < 2000; ++i) {
    const auto n = 1 + static_cast<std::int64_t>(random.below(6000));
    const auto lba =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(sectors(m) - n)));
    const Lba end{lba + n};
    const Nanos ended = m.stream_end(7_ms, Lba{lba}, Sectors{n});
    EXPECT_EQ(m.stream_reached(7_ms, Lba{lba}, ended, end), end);
    EXPECT_EQ(m.stream_reached(7_ms, Lba{lba}, ended - 1_ns, end), Lba{lba + n - 1});
  }
}

TEST(Mechanics, EveryTrackHoldsItsSectors) {
  const Mechanics m = mechanics();
  const Geometry& g = m.geometry();
  const std::int64_t tracks = g.locate(Lba{sectors(m) - 1}).track;
  for (std::int64_t track = 0; track < tracks; ++track) {
    const Place first = g.locate(g.first_lba(track));
    const Place last = g.locate(Lba{g.first_lba(track + 1).index() - 1});
    EXPECT_EQ(first.track, track);
    EXPECT_EQ(first.sector, 0);
    EXPECT_EQ(last.track, track);
    EXPECT_EQ(last.sector, last.sectors_per_track - 1);
  }
}

}  // namespace test_mechanics
}  // namespace flashlab::disk
