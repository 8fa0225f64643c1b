// A small flash drive, driven request by request, for GoogleTests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "flash/ssd.hpp"

namespace flashlab::flash {

using namespace literals;

inline constexpr std::int64_t kUnitSectors = 8;

// 4 KiB: 10 us on the channel, 4 us on the link.
inline SsdParameters parameters() {
  SsdParameters p;
  p.geometry = {4_MiB, 0.6, 16_KiB, 4_KiB, 1, 8, 2, 1, "per_die"};
  p.nand = {50_us, 500_us, 3_ms, 200_us, BytesPerSecond{409'600'000}, 0.0, 0};
  p.link_rate = BytesPerSecond{1'024'000'000};
  p.command_time = 5_us;
  p.read_latency = 7_us;
  p.write_latency = 3_us;
  p.write_buffer = 16_KiB * 8;
  p.trim.costs = {900_ns, 600_ns, 40_ns, 60_ns, 16_KiB};
  p.trim.max_ranges = 4;
  p.background_idle = 1_ms;
  p.queue_depth = 32;
  return p;
}

inline Request of(Op op, std::int64_t unit, std::int64_t units = 1) {
  return {op, Lba{unit * kUnitSectors}, Sectors{units * kUnitSectors}};
}
inline Request read(std::int64_t unit, std::int64_t units = 1) { return of(Op::read, unit, units); }
inline Request write(std::int64_t unit, std::int64_t units = 1) {
  return of(Op::write, unit, units);
}
inline Request trim(std::int64_t unit, std::int64_t units = 1) { return of(Op::trim, unit, units); }
inline Request fua(std::int64_t unit, std::int64_t units = 1) {
  Request request = write(unit, units);
  request.fua = true;
  return request;
}
inline Request flush() { return {Op::flush, Lba{0}, Sectors{0}}; }
inline Request part(Op op, std::int64_t lba, std::int64_t n) { return {op, Lba{lba}, Sectors{n}}; }
inline Extent units(std::int64_t unit, std::int64_t n) {
  return {Lba{unit * kUnitSectors}, Lba{(unit + n) * kUnitSectors}};
}
using Extents = std::vector<Extent>;

class World final : private Host {
 public:
  explicit World(const SsdParameters& p) : ssd(p, *this) {}

  Tag submit(const Request& request) {
    const Tag tag = static_cast<Tag>(submitted.size());
    submitted.push_back(now);
    ssd.submit(tag, request, now);
    EXPECT_TRUE(answers.contains(tag));
    return tag;
  }
  // How long it takes, alone.
  Nanos takes(const Request& request) {
    const Nanos begin = now;
    now = std::max(now, answers.at(submit(request)));
    return now - begin;
  }
  Nanos end_of(Tag tag) { return answers.at(tag); }
  Extents cut() {
    Extents doubt = ssd.power_cut(now);
    return doubt;
  }
  std::vector<std::byte> saved() {
    std::vector<std::byte> bytes;
    Archive a = Archive::saving(bytes);
    ssd.archive(a);
    return bytes;
  }
  void restore(const std::vector<std::byte>& bytes) {
    Archive a = Archive::restoring(bytes);
    ssd.archive(a);
    EXPECT_TRUE(a.at_end());
  }
  [[nodiscard]] bool maps(Lpn lpn) const { return ssd.ftl().map().find(lpn) != kNoSlot; }

  Nanos now;
  std::vector<Nanos> submitted;
  std::map<Tag, Nanos> answers;
  Ssd ssd;

 private:
  void done(Tag tag, Nanos when) override {
    EXPECT_TRUE(answers.emplace(tag, when).second) << "answered twice";
    EXPECT_GE(when, submitted[tag]);
  }
  void wake_at(Nanos /*when*/) override {}
};

}  // namespace flashlab::flash
