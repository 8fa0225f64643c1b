// Which of the host's pages are programmed in SLC mode first, and when do they move on?
//
// Flash of two or three bits a cell is written faster with one. What was goes to its place later
// (is folded): a page that is programmed a second time. A place is reserved for it from the
// beginning, so the map knows nothing of the cache. One file per policy, and for each one here: its
// declaration, its line in the table, its parameters.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/archive.hpp"
#include "base/units.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

struct SlcParameters {
  std::string policy = "fixed";
  Bytes cache;
  double dynamic_ratio = 0.0;
  bool fold_first = false;
};

template <class V>
void describe(V& v, SlcParameters& p) {
  v.required("slc_cache_bytes", p.cache, "written first and at SLC speed; emptied when idle");
  v.optional("slc", p.policy, "how large the SLC cache is, and what leaves it when");
  v.optional("slc_dynamic_ratio", p.dynamic_ratio,
             "of dynamic: for each byte that holds no data, so much is added to slc_cache");
  v.optional("slc_fold_first", p.fold_first,
             "of dynamic: a full cache makes room and the host waits; else it writes past it");
}

// The drive that a policy works for.
class SlcDrive {
 public:
  [[nodiscard]] virtual const Geometry& slc_geometry() const = 0;
  // Of the address space: what was never written, or trimmed.
  [[nodiscard]] virtual Bytes unmapped() const = 0;
  // How often the page's block was erased.
  [[nodiscard]] virtual std::uint32_t erases_of(Page page) const = 0;
  // Whether anything that was written to this page is still wanted, and still there.
  [[nodiscard]] virtual bool wanted(Page page) const = 0;
  // Whether a die has nothing to do.
  [[nodiscard]] virtual bool is_idle(Die die) const = 0;
  // A page of this die is read in the cache and programmed in its place.
  virtual void fold(Die die) = 0;

 protected:
  ~SlcDrive() = default;
};

// Pages, since the last reset of the counters.
struct SlcStatus {
  std::uint64_t folded_idle = 0;
  std::uint64_t folded_pressed =
      0;                      // while the host wrote: the cache had to shrink, or to have room
  std::uint64_t dropped = 0;  // nobody wanted them any more: never programmed again
};

class SlcPolicy {
 public:
  virtual ~SlcPolicy() = default;
  // The host's next page is about to be programmed: whether that is in SLC mode.
  virtual bool takes(SlcDrive& drive, Page page) = 0;
  // Folds a page of a die that has nothing to do, as nobody asks for anything; false if there is
  // none.
  virtual bool fold_idle(SlcDrive& drive) = 0;
  // So much was written without taking time.
  virtual void conditioned(Bytes written) = 0;
  // Null where a policy has nothing to say beyond what the drive counts.
  [[nodiscard]] virtual std::optional<SlcStatus> status() const { return std::nullopt; }
  virtual void reset_status() {}
  virtual void archive(Archive& a) = 0;
};

std::unique_ptr<SlcPolicy> make_slc_fixed(const SlcParameters& parameters,
                                          const Geometry& geometry);
std::unique_ptr<SlcPolicy> make_slc_dynamic(const SlcParameters& parameters,
                                            const Geometry& geometry);

struct SlcEntry {
  std::string_view name;
  std::unique_ptr<SlcPolicy> (*make)(const SlcParameters& parameters, const Geometry& geometry);
};
inline constexpr std::array kSlcPolicies{
    SlcEntry{"fixed", make_slc_fixed},
    SlcEntry{"dynamic", make_slc_dynamic},
};

// Null where there is no cache. Throws OperatingError for a name that is not in the table, and for
// sizes that no drive can have.
std::unique_ptr<SlcPolicy> make_slc_policy(const SlcParameters& parameters,
                                           const Geometry& geometry);

}  // namespace flashlab::flash
