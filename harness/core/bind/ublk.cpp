// The block device that a live device is served as by ublk; see front/ublk.py.
#include "live/ublk.hpp"

#include <nanobind/stl/optional.h>

#include <optional>

#include "bind/live.hpp"

using namespace nanobind::literals;

namespace flashlab::bind {

namespace {

// The block device for as long as it is served: Python says when it ends.
struct ServedDevice {
  ServedDevice(Live& live, std::uint64_t mark, const live::UblkLimits& limits,
               std::optional<int> again) {
    if (again.has_value()) {
      device.emplace(live.device, mark, limits, *again);
    } else {
      device.emplace(live.device, mark, limits);
    }
  }

  std::optional<live::Ublk> device;
};

}  // namespace

void bind_ublk(nb::module_& m) {
  nb::class_<ServedDevice>(m, "Ublk", "A live device as a block device of the driver ublk.")
      .def(
          "__init__",
          [](ServedDevice* self, Live& device, std::uint64_t mark, bool rotational,
             std::uint32_t depth, std::int64_t largest, std::int64_t discard, bool recoverable,
             std::optional<int> again) {
            const nb::gil_scoped_release release;
            new (self) ServedDevice(
                device, mark, {rotational, depth, Bytes{largest}, Bytes{discard}, recoverable},
                again);
          },
          "device"_a, nb::kw_only(), "mark"_a, "rotational"_a, "depth"_a, "largest_bytes"_a,
          "discard_bytes"_a, "recoverable"_a = false, "again"_a = nb::none(),
          nb::keep_alive<1, 2>(),
          "Makes it, with the kernel's limits for its queue; `mark` is what it is found by.\n\n"
          "A recoverable one stays when its process dies; `again` is the number of one that has "
          "stayed, and is served from now on.")
      .def_prop_ro(
          "number", [](const ServedDevice& served) { return served.device->number(); },
          "Of /dev/ublkb0, ublkb1, ...")
      .def(
          "take",
          [](ServedDevice& served) {
            const nb::gil_scoped_release release;
            served.device->take();
          },
          "Takes the block device from the host; what is asked of it from then on fails.")
      .def(
          "close",
          [](ServedDevice& served) {
            const nb::gil_scoped_release release;
            served.device.reset();
          },
          "Takes it from the host, ends serving, and removes it from the kernel.")
      .def_static("available", [] { return live::Ublk::available(); })
      .def_static(
          "mark_of", [](int number) { return live::ublk_mark(number); }, "number"_a,
          "The mark of the device with that number, if there is one.")
      .def_static(
          "is_recoverable", [](int number) { return live::ublk_is_recoverable(number); },
          "number"_a, "Whether the device with that number stays when its process dies.")
      .def_static(
          "take_other",
          [](int number, std::uint64_t mark) {
            const nb::gil_scoped_release release;
            live::ublk_take(number, mark);
          },
          "number"_a, "mark"_a, "Takes a device of any process from the host, if it has that mark.")
      .def_static(
          "remove_other",
          [](int number, std::uint64_t mark) {
            const nb::gil_scoped_release release;
            live::ublk_remove(number, mark);
          },
          "number"_a, "mark"_a, "Removes a device of any process, if it has that mark.");
}

}  // namespace flashlab::bind
