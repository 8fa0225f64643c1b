// Policies are found by name. An unknown name fails and lists the known ones.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"

namespace flashlab {

// Entry needs a member `std::string_view name`, here and below.
template <class Entry, std::size_t N>
std::vector<std::string> names_of(const std::array<Entry, N>& table) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.emplace_back(entry.name);
  return names;
}

template <class Entry, std::size_t N>
const Entry& find_policy(const std::array<Entry, N>& table, std::string_view kind,
                         std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.name == name) return entry;
  }
  std::string known;
  for (const std::string& each : names_of(table)) known += (known.empty() ? "" : ", ") + each;
  throw OperatingError(
      ErrorKind::bad_parameter,
      "unknown " + std::string(kind) + " '" + std::string(name) + "' (known: " + known + ")");
}

}  // namespace flashlab
