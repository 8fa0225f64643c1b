// Data that says of every sector where it belongs and which version of it this is.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/extent.hpp"

namespace flashlab::testing_live {

// Memory that reads as zeros, as the stores of live devices.
inline int memory_fd(Bytes size) {
  const int fd = ::memfd_create("flashlab-test", 0);
  if (fd < 0 || ::ftruncate(fd, size.count()) < 0) throw std::runtime_error("no memory file");
  return fd;
}

using Version = std::uint64_t;  // 0: never written, or trimmed

struct Stamp {
  std::int64_t sector;
  Version version;
};

inline void stamp(std::span<std::byte> into, std::int64_t first_sector, Version version) {
  constexpr std::size_t kSize = sizeof(Stamp);
  for (std::size_t at = 0; at < into.size(); at += kSize) {
    const Stamp s{first_sector + static_cast<std::int64_t>(at / kSectorBytes), version};
    std::memcpy(into.data() + at, &s, kSize);
  }
}

inline std::vector<std::byte> stamped(const Extent& extent, Version version) {
  std::vector<std::byte> data(static_cast<std::size_t>(to_bytes(extent.length()).count()));
  stamp(data, extent.begin.index(), version);
  return data;
}

// The version of a sector's content; nothing if it is torn, or another sector's.
inline std::optional<Version> version_of(std::span<const std::byte> sector, std::int64_t index) {
  Stamp first;
  std::memcpy(&first, sector.data(), sizeof first);
  if (first.version == 0) first.sector = 0;
  for (std::size_t at = 0; at < sector.size(); at += sizeof(Stamp)) {
    if (std::memcmp(sector.data() + at, &first, sizeof first) != 0) return {};
  }
  if (first.version != 0 && first.sector != index) return {};
  return first.version;
}

}  // namespace flashlab::testing_live
