// Randomness: one seed replays everything. No global generator exists.
#pragma once

#include <cstdint>

namespace flashlab {

// Finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection on 64 bits in which
// every input bit moves about half of the output bits. Serves as hash function, too.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// SplitMix64: 64 bits of state, passes BigCrush, streams of different seeds are unrelated.
class Prng {
 public:
  constexpr explicit Prng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }

  // Uniform on [0, bound). Lemire's multiplication without the rejection step: the bias is below
  // bound / 2^64, far under what any experiment here can see.
  constexpr std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace flashlab
