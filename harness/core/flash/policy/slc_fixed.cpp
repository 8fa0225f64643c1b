// A cache of one size: full when so much was written, and emptied page by page when the drive is
// idle. It remembers how much it holds, not what: all of it is folded, wanted or not, by whichever
// die has nothing to do.
#include <algorithm>

#include "flash/policy/slc.hpp"

namespace flashlab::flash {

namespace {

class Fixed final : public SlcPolicy {
 public:
  Fixed(Bytes cache, const Geometry& geometry)
      : cache_(cache), left_(cache), page_(geometry.page()), dies_(geometry.dies()) {}

  bool takes(SlcDrive& /*drive*/, Page /*page*/) override {
    if (left_ < page_) return false;
    left_ -= page_;
    return true;
  }

  bool fold_idle(SlcDrive& drive) override {
    if (left_ + page_ > cache_) return false;
    for (Die tries = 0; tries < dies_; ++tries) {
      const Die die = die_;
      die_ = die_ + 1 == dies_ ? 0 : die_ + 1;
      if (!drive.is_idle(die)) continue;
      drive.fold(die);
      left_ += page_;
      return true;
    }
    return false;
  }

  // What went through the cache is still there, since the drive has not been idle.
  void conditioned(Bytes written) override { left_ = std::max(left_ - written, Bytes{0}); }

  void archive(Archive& a) override { a.all(left_, die_); }

 private:
  Bytes cache_;
  Bytes left_;
  Bytes page_;
  Die dies_;
  Die die_ = 0;
};

}  // namespace

std::unique_ptr<SlcPolicy> make_slc_fixed(const SlcParameters& p, const Geometry& geometry) {
  return std::make_unique<Fixed>(p.cache, geometry);
}

}  // namespace flashlab::flash
