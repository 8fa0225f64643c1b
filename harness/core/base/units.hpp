// Units as types: a byte count cannot be added to a time, nor an address to a count.
#pragma once

#include <compare>
#include <cstdint>

namespace flashlab {

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t value) : value_(value) {}

  [[nodiscard]] constexpr std::int64_t count() const { return value_; }
  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity{a.value_ * n}; }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return a * n; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t n) { return Quantity{a.value_ / n}; }
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
  friend constexpr Quantity operator%(Quantity a, Quantity b) {
    return Quantity{a.value_ % b.value_};
  }

 private:
  std::int64_t value_ = 0;
};

using Nanos = Quantity<struct NanosTag>;      // a time, or a length of time
using Bytes = Quantity<struct BytesTag>;      // a size, or an offset from a device's start
using Sectors = Quantity<struct SectorsTag>;  // a number of 512-byte sectors
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using RevolutionsPerMinute = Quantity<struct RevolutionsPerMinuteTag>;

inline constexpr std::int64_t kSectorBytes = 512;

// The address of a 512-byte sector. Addresses differ by Sectors; they do not add up.
class Lba {
 public:
  constexpr Lba() = default;
  constexpr explicit Lba(std::int64_t value) : value_(value) {}

  [[nodiscard]] constexpr std::int64_t index() const { return value_; }
  constexpr auto operator<=>(const Lba&) const = default;
  friend constexpr Lba operator+(Lba a, Sectors n) { return Lba{a.value_ + n.count()}; }
  friend constexpr Sectors operator-(Lba a, Lba b) { return Sectors{a.value_ - b.value_}; }

 private:
  std::int64_t value_ = 0;
};

constexpr Bytes to_bytes(Sectors n) { return Bytes{n.count() * kSectorBytes}; }
constexpr Bytes to_bytes(Lba lba) { return Bytes{lba.index() * kSectorBytes}; }
constexpr Sectors to_sectors(Bytes n) { return Sectors{n.count() / kSectorBytes}; }
constexpr Lba to_lba(Bytes offset) { return Lba{offset.count() / kSectorBytes}; }

// Time to move n bytes, rounded up to the next nanosecond. Integers only, so that every machine
// computes the same time; exact up to 8 EiB * ns, hence the 128-bit product.
constexpr Nanos transfer_time(Bytes n, BytesPerSecond rate) {
  __extension__ using Wide = __int128;
  const Wide product = static_cast<Wide>(n.count()) * 1'000'000'000;
  return Nanos{static_cast<std::int64_t>((product + rate.count() - 1) / rate.count())};
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline namespace literals {
constexpr Nanos operator""_ns(unsigned long long n) { return Nanos{static_cast<std::int64_t>(n)}; }
constexpr Nanos operator""_us(unsigned long long n) {
  return 1'000_ns * static_cast<std::int64_t>(n);
}
constexpr Nanos operator""_ms(unsigned long long n) {
  return 1'000_us * static_cast<std::int64_t>(n);
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n) * 1024};
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return 1024_KiB * static_cast<std::int64_t>(n);
}
}  // namespace literals

}  // namespace flashlab
