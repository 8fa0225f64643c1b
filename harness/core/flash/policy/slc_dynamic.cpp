// A cache that takes its cells from the space that holds no data: slc_cache, and a part of what is
// unmapped. A drive that is told of nothing loses it as it fills, one that is gets it back.
//
// Pages are kept in the order in which they came. One that was trimmed, overwritten or collected
// meanwhile is dropped, not folded.
//  - Idle: the oldest page is folded.
//  - Too large, as the free space has shrunk: with each page of the host's two are folded.
//  - Full: the oldest stretch of pages is looked at; if all but a few of them are no longer wanted,
//    these few are folded and the cells are free, as an erase block's are; else it is put back
//    behind the others. If there is still no room the host writes past the cache (as fast as the
//    cells are with all their bits), or with slc_fold_first waits until the oldest is folded.
#include <algorithm>
#include <cmath>

#include "base/ring.hpp"
#include "flash/policy/slc.hpp"

namespace flashlab::flash {

namespace {

constexpr std::size_t kStretch = 16;
constexpr std::size_t kFew = kStretch / 8;
constexpr std::size_t kShrinkPages = 2;

class Dynamic final : public SlcPolicy {
 public:
  Dynamic(const SlcParameters& p, const Geometry& geometry)
      : parameters_(p), page_(geometry.page()) {}

  bool takes(SlcDrive& drive, Page page) override {
    const Bytes size = size_of(drive);
    for (std::size_t i = 0; i < kShrinkPages && held() > size; ++i) fold_oldest(drive);
    if (held() + page_ > size) look_at_stretch(drive);
    while (parameters_.fold_first && page_ <= size && held() + page_ > size) fold_oldest(drive);
    if (held() + page_ > size) return false;
    pages_.push_back({page, drive.erases_of(page)});
    return true;
  }

  bool fold_idle(SlcDrive& drive) override {
    while (!pages_.empty()) {
      const Cached oldest = pages_.front();
      pages_.pop_front();
      if (!is_wanted(drive, oldest)) {
        ++status_.dropped;
        continue;
      }
      fold(drive, oldest);
      ++status_.folded_idle;
      return true;
    }
    return false;
  }

  // As after a long rest.
  void conditioned(Bytes /*written*/) override { pages_.clear(); }

  [[nodiscard]] std::optional<SlcStatus> status() const override { return status_; }
  void reset_status() override { status_ = {}; }

  void archive(Archive& a) override {
    pages_.archive(a);
    a.one(status_);
  }

 private:
  struct Cached {
    Page page = 0;
    std::uint32_t erases = 0;  // of its block, when it was written
  };

  [[nodiscard]] Bytes size_of(const SlcDrive& drive) const {
    const double added = parameters_.dynamic_ratio * static_cast<double>(drive.unmapped().count());
    return parameters_.cache + Bytes{static_cast<std::int64_t>(std::floor(added))};
  }
  [[nodiscard]] Bytes held() const { return page_ * static_cast<std::int64_t>(pages_.size()); }

  static bool is_wanted(const SlcDrive& drive, const Cached& cached) {
    return drive.erases_of(cached.page) == cached.erases && drive.wanted(cached.page);
  }

  static void fold(SlcDrive& drive, const Cached& cached) {
    const Geometry& geometry = drive.slc_geometry();
    drive.fold(geometry.die_of(cached.page * geometry.slots_per_page()));
  }

  // Leaves the cache, folded if it must be.
  void leave(SlcDrive& drive, const Cached& cached) {
    if (!is_wanted(drive, cached)) {
      ++status_.dropped;
      return;
    }
    fold(drive, cached);
    ++status_.folded_pressed;
  }

  void fold_oldest(SlcDrive& drive) {
    const Cached oldest = pages_.front();
    pages_.pop_front();
    leave(drive, oldest);
  }

  void look_at_stretch(SlcDrive& drive) {
    if (pages_.size() < kStretch) return;
    std::array<Cached, kStretch> stretch;
    std::size_t wanted = 0;
    for (Cached& cached : stretch) {
      cached = pages_.front();
      pages_.pop_front();
      if (is_wanted(drive, cached)) ++wanted;
    }
    for (const Cached& cached : stretch) {
      if (wanted <= kFew) {
        leave(drive, cached);
      } else {
        pages_.push_back(cached);
      }
    }
  }

  SlcParameters parameters_;
  Bytes page_;
  Ring<Cached> pages_;  // oldest first
  SlcStatus status_;
};

}  // namespace

std::unique_ptr<SlcPolicy> make_slc_dynamic(const SlcParameters& p, const Geometry& geometry) {
  return std::make_unique<Dynamic>(p, geometry);
}

}  // namespace flashlab::flash
