// What the parts of the Python face share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.hpp"
#include "base/device.hpp"
#include "disk/hdd.hpp"
#include "flash/ssd.hpp"

namespace flashlab::bind {

namespace nb = nanobind;

using DeviceParameters = std::variant<disk::HddParameters, flash::SsdParameters>;
using ByteArray = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<DeviceModel> make_device(const DeviceParameters& parameters, Host& host);
nb::dict counters_of(const DeviceModel& device);

// Named ranges of a flash drive: name, begin and end in bytes, stream.
using RangeTuple = std::tuple<std::string, std::int64_t, std::int64_t, std::uint16_t>;
constexpr const char* kRangesDoc =
    "(name, begin and end in bytes, stream): counted apart from now on.";
std::vector<flash::NamedRange> ranges_from(const std::vector<RangeTuple>& ranges);
nb::list ranges_of(const flash::Ssd& ssd);
// By range, the rest last: units (host, copied, padded, coalesced).
nb::list range_shares_of(const flash::Ssd& ssd);
// Throws OperatingError for a disk.
flash::Ssd& flash_of(DeviceModel& device);
const flash::Ssd& flash_of(const DeviceModel& device);

template <class T>
nb::object to_numpy(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// Keyword arguments, each taken once: what is missing and what is left over is an error that names
// it.
class Arguments {
 public:
  Arguments(std::string owner, const nb::kwargs& given) : owner_(std::move(owner)) {
    for (const auto& [key, value] : given) left_[key] = value;
  }

  template <class T>
  T take(const char* name) {
    require(left_.contains(name), owner_ + ": " + name + " is missing");
    return taken<T>(name);
  }
  template <class T>
  T take_or(const char* name, T otherwise) {
    return left_.contains(name) ? taken<T>(name) : otherwise;
  }
  Bytes bytes(const char* name) { return Bytes{take<std::int64_t>(name)}; }
  Nanos nanos(const char* name) { return Nanos{take<std::int64_t>(name)}; }
  BytesPerSecond rate(const char* name) { return BytesPerSecond{take<std::int64_t>(name)}; }
  void finish() const {
    for (const auto& [key, value] : left_) {
      throw OperatingError(ErrorKind::bad_parameter,
                           owner_ + ": unknown argument " + nb::cast<std::string>(key));
    }
  }

 private:
  template <class T>
  T taken(const char* name) {
    T value;
    try {
      value = nb::cast<T>(left_[name]);
    } catch (const nb::cast_error&) {
      throw OperatingError(ErrorKind::bad_parameter,
                           owner_ + ": " + name + " has the wrong type or is out of range");
    }
    nb::del(left_[name]);
    return value;
  }

  std::string owner_;
  nb::dict left_;
};

void bind_devices(nb::module_& m);
void bind_dbms(nb::module_& m);
void bind_hash_join(nb::module_& m);
void bind_tpcc(nb::module_& m);
void bind_live(nb::module_& m);

}  // namespace flashlab::bind
