// A cache that takes its cells from the space that holds no data: slc_cache, and a part of what is
// unmapped. A drive that is told of nothing loses it as it fills, one that is gets it back.
//
// Pages are kept in the order in which they came. One that was trimmed, overwritten or collected
// meanwhile is dropped, not folded.
//  - Idle: a die that has nothing to do folds its oldest page.
//  - Too large, as the free space has shrunk: with each page of the host's two are folded.
//  - Full: the oldest stretch of pages is looked at; if all but a few of them are no longer wanted,
//    these few are folded and the cells are free, as an erase block's are; else it is put back
//    behind the others. If there is still no room the host writes past the cache (as fast as the
//    cells are with all their bits), or with slc_fold_first waits until the oldest is folded.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

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
      : parameters_(p), page_(geometry.page()), pages_(geometry.dies()) {}

  bool takes(SlcDrive& drive, Page page) override {
    const Bytes size = size_of(drive);
    for (std::size_t i = 0; i < kShrinkPages && held() > size; ++i) fold_oldest(drive);
    if (held() + page_ > size) look_at_stretch(drive);
    while (parameters_.fold_first && page_ <= size && held() + page_ > size) fold_oldest(drive);
    if (held() + page_ > size) return false;
    push(drive, {page, drive.erases_of(page)});
    return true;
  }

  bool fold_idle(SlcDrive& drive) override {
    while (const auto die = die_of_oldest([&](Die at) { return drive.is_idle(at); })) {
      if (!is_wanted(drive, pop(*die))) {
        ++status_.dropped;
        continue;
      }
      drive.fold(*die);
      ++status_.folded_idle;
      return true;
    }
    return false;
  }

  // As after a long rest.
  void conditioned(Bytes /*written*/) override {
    for (Ring<Cached>& of_die : pages_) of_die.clear();
    count_ = 0;
  }

  [[nodiscard]] std::optional<SlcStatus> status() const override { return status_; }
  void reset_status() override { status_ = {}; }

  void archive(Archive& a) override {
    for (Ring<Cached>& of_die : pages_) of_die.archive(a);
    a.all(count_, pushed_, status_);
  }

 private:
  struct Cached {
    Page page = 0;
    std::uint32_t erases = 0;  // of its block, when it was written
    std::uint64_t number = 0;  // of all that were pushed
  };

  [[nodiscard]] Bytes size_of(const SlcDrive& drive) const {
    const double added = parameters_.dynamic_ratio * static_cast<double>(drive.unmapped().count());
    return parameters_.cache + Bytes{static_cast<std::int64_t>(std::floor(added))};
  }
  [[nodiscard]] Bytes held() const { return page_ * static_cast<std::int64_t>(count_); }

  static Die die_of(const SlcDrive& drive, const Cached& cached) {
    const Geometry& geometry = drive.slc_geometry();
    return geometry.die_of(cached.page * geometry.slots_per_page());
  }

  void push(const SlcDrive& drive, Cached cached) {
    cached.number = pushed_++;
    pages_[die_of(drive, cached)].push_back(cached);
    ++count_;
  }
  // The oldest of a die that has one.
  Cached pop(Die die) {
    const Cached oldest = pages_[die].front();
    pages_[die].pop_front();
    --count_;
    return oldest;
  }
  // Of the dies of which `may` says so.
  template <class May>
  [[nodiscard]] std::optional<Die> die_of_oldest(const May& may) const {
    std::optional<Die> found;
    std::uint64_t oldest = pushed_;
    for (Die die = 0; die < pages_.size(); ++die) {
      if (pages_[die].empty() || pages_[die][0].number >= oldest || !may(die)) continue;
      oldest = pages_[die][0].number;
      found = die;
    }
    return found;
  }
  Cached pop_oldest() {
    return pop(die_of_oldest([](Die /*any*/) { return true; }).value());
  }

  static bool is_wanted(const SlcDrive& drive, const Cached& cached) {
    return drive.erases_of(cached.page) == cached.erases && drive.wanted(cached.page);
  }

  // Leaves the cache, folded if it must be.
  void leave(SlcDrive& drive, const Cached& cached) {
    if (!is_wanted(drive, cached)) {
      ++status_.dropped;
      return;
    }
    drive.fold(die_of(drive, cached));
    ++status_.folded_pressed;
  }

  void fold_oldest(SlcDrive& drive) { leave(drive, pop_oldest()); }

  void look_at_stretch(SlcDrive& drive) {
    if (count_ < kStretch) return;
    std::array<Cached, kStretch> stretch;
    std::size_t wanted = 0;
    for (Cached& cached : stretch) {
      cached = pop_oldest();
      if (is_wanted(drive, cached)) ++wanted;
    }
    for (const Cached& cached : stretch) {
      if (wanted <= kFew) {
        leave(drive, cached);
      } else {
        push(drive, cached);
      }
    }
  }

  SlcParameters parameters_;
  Bytes page_;
  std::vector<Ring<Cached>> pages_;  // by die, oldest first
  std::size_t count_ = 0;            // of all dies
  std::uint64_t pushed_ = 0;
  SlcStatus status_;
};

}  // namespace

std::unique_ptr<SlcPolicy> make_slc_dynamic(const SlcParameters& p, const Geometry& geometry) {
  return std::make_unique<Dynamic>(p, geometry);
}

}  // namespace flashlab::flash
