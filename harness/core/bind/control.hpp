// What can be done to a flash drive, whatever holds it: in virtual time, under a host, or live.
// What fails leaves the drive as it was.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bind/convert.hpp"

namespace flashlab::bind {

// `on_flash(holder, change)` calls `change(Ssd&, Nanos now)` without the GIL, when nothing else
// comes to the drive. Throws OperatingError for a disk.
template <class Holder, class... Bases, class OnFlash>
void bind_ranges(nb::class_<Holder, Bases...>& bound, OnFlash on_flash) {
  using namespace nb::literals;
  bound.def(
      "set_ranges",
      [on_flash](Holder& holder, const std::vector<RangeTuple>& ranges) {
        std::vector<flash::NamedRange> named = ranges_from(ranges);
        on_flash(holder,
                 [&](flash::Ssd& ssd, Nanos now) { ssd.set_ranges(std::move(named), now); });
      },
      "ranges"_a, "(name, begin and end in bytes, stream): counted apart from now on.");
}

template <class Holder, class... Bases, class OnFlash>
void bind_flash_control(nb::class_<Holder, Bases...>& bound, OnFlash on_flash) {
  using namespace nb::literals;
  bind_ranges(bound, on_flash);
  bound
      .def(
          "set_trim_policy",
          [on_flash](Holder& holder, const std::string& name) {
            on_flash(holder, [&](flash::Ssd& ssd, Nanos now) { ssd.set_trim_policy(name, now); });
          },
          "name"_a, "What was put off is done before.")
      .def(
          "slow_die",
          [on_flash](Holder& holder, std::int64_t die, double factor) {
            require(factor >= 1.0 && factor <= 1000.0,
                    "factor: a die can be 1 to 1000 times as slow");
            const std::int64_t thousandths = std::llround(factor * 1000.0);
            on_flash(holder,
                     [&](flash::Ssd& ssd, Nanos now) { ssd.slow_die(die, thousandths, now); });
          },
          "die"_a, "factor"_a, "The cells of this die take so many times as long from now on.")
      .def(
          "precondition",
          [on_flash](Holder& holder, double fill_ratio, double overwrites, std::uint64_t seed) {
            on_flash(holder, [&](flash::Ssd& ssd, Nanos /*now*/) {
              ssd.precondition(fill_ratio, overwrites, seed);
            });
          },
          nb::kw_only(), "fill_ratio"_a, "overwrites"_a, "seed"_a)
      .def(
          "to_steady_state",
          [on_flash](Holder& holder, std::uint64_t seed) {
            on_flash(holder, [&](flash::Ssd& ssd, Nanos /*now*/) { ssd.to_steady_state(seed); });
          },
          "seed"_a);
}

}  // namespace flashlab::bind
