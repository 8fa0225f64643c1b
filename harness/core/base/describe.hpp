// A struct of parameters or of counters is described once, by a function that is found by the
// struct's type: in describe.hpp of its part (flash, disk, host, dbms, join), that of a policy's
// parameters beside the policies. Whatever names its members is made from that: keywords and their
// checks, the profiles' schema, the stub, tables of counters.
//
//   template <class V>
//   void describe(V& v, NandParameters& p) {
//     v.required("read_page_ns", p.read_page, "tR: cells to page register");
//     v.optional("jitter_ratio", p.jitter, "each operation takes 1 +- this, uniformly");
//   }
//
// The visitor `v` may read the members or write them.
//  - required(name, member, doc): must be given. optional(...): keeps the value that it has.
//  - group(name, member, doc): a described struct that is given as a whole.
//  - beside_profile(): what follows is no matter of a drive's or machine's make: no profile has it.
// A name is the keyword in Python, and ends with the unit of the member's type. A part describes
// itself: describe(v, p.nand). What follows from a member is set behind its line, so that it holds
// whether `v` has written or not.
//
//   template <class V>
//   void count(V& v, const NandCounters& c) {
//     v("page_reads", c.page_reads);
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/units.hpp"

namespace flashlab {

// What a parameter is measured in: the schema's word for it, and how its name ends.
struct Unit {
  std::string_view kind;
  std::string_view suffix;
};

template <class T>
inline constexpr Unit kUnit{std::is_integral_v<T> ? "count" : "other", ""};
template <>
inline constexpr Unit kUnit<Nanos>{"time", "_ns"};
template <>
inline constexpr Unit kUnit<Bytes>{"size", "_bytes"};
template <>
inline constexpr Unit kUnit<BytesPerSecond>{"rate", "_bytes_per_s"};
template <>
inline constexpr Unit kUnit<RevolutionsPerMinute>{"rotation", ""};
template <>
inline constexpr Unit kUnit<std::string>{"name", ""};
template <>
inline constexpr Unit kUnit<bool>{"switch", ""};
template <class T>
inline constexpr Unit kUnit<std::optional<T>> = kUnit<T>;

// A number without such an end is no ratio: its name says what it is.
template <class T>
constexpr Unit unit_of(std::string_view name) {
  if constexpr (std::is_same_v<T, double>) {
    return name.ends_with("_ratio") ? Unit{"ratio", "_ratio"} : Unit{"number", ""};
  } else {
    return kUnit<T>;
  }
}

}  // namespace flashlab
