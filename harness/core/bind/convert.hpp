// What the parts of the Python face share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.hpp"
#include "base/device.hpp"
#include "disk/hdd.hpp"
#include "flash/ssd.hpp"
#include "host/latency_histogram.hpp"
#include "host/request_trace.hpp"

namespace flashlab::bind {

namespace nb = nanobind;

using DeviceParameters = std::variant<disk::HddParameters, flash::SsdParameters>;
using ByteArray = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<DeviceModel> make_device(const DeviceParameters& parameters, Host& host);
nb::dict counters_of(const DeviceModel& device);

// The sectors [begin, end), both in bytes. Throws OperatingError, which begins with `what`, where
// they are none.
Extent extent_from(std::int64_t begin, std::int64_t end, const std::string& what);

// Named ranges of a flash drive: name, begin and end in bytes, stream.
using RangeTuple = std::tuple<std::string, std::int64_t, std::int64_t, std::uint16_t>;
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

// Values as numbers: units are in the names then.
template <class T>
auto plain(T value) {
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
    return static_cast<std::uint8_t>(value);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return static_cast<std::int64_t>(value);
  } else {
    return value;
  }
}
template <class Tag>
std::int64_t plain(Quantity<Tag> value) {
  return value.count();
}
inline std::int64_t plain(Lba value) { return value.index(); }

// Rows as a dictionary of equally long arrays.
template <class Row>
class Columns {
 public:
  explicit Columns(const std::vector<Row>& rows) : rows_(rows) {}

  // `value`: a member of the row, or a function of it.
  template <class Value>
  Columns& add(const char* name, Value value) {
    using T = decltype(plain(std::invoke(value, std::declval<const Row&>())));
    std::vector<T> values;
    values.reserve(rows_.size());
    for (const Row& row : rows_) values.push_back(plain(std::invoke(value, row)));
    columns_[name] = to_numpy(std::move(values));
    return *this;
  }
  [[nodiscard]] nb::dict dict() const { return columns_; }

 private:
  const std::vector<Row>& rows_;
  nb::dict columns_;
};

// What a histogram holds: lower bounds (ns) and counts of the buckets that are not empty.
struct Buckets {
  std::vector<std::int64_t> lower;
  std::vector<std::int64_t> counts;
};
Buckets buckets_of(const host::LatencyHistogram& histogram);

// time_ns, number, lba, sectors, op, stream.
nb::dict trace_of(const std::vector<host::TracedRequest>& rows);

void bind_devices(nb::module_& m);
void bind_policies(nb::module_& m);
void bind_join(nb::module_& m);
void bind_dbms(nb::module_& m);
void bind_hash_join(nb::module_& m);
void bind_tpcc(nb::module_& m);
void bind_live(nb::module_& m);

}  // namespace flashlab::bind
