// Hints to the processor that memory will be wanted soon.
//
// To GCC a function that only hints has no effect, and calls of it that it does not inline are left
// out. The empty statement, which may not be left out, makes them calls that matter.
#pragma once

namespace flashlab {

// In a moment.
inline void prefetch(const void* at) {
  __builtin_prefetch(at, 1);
  asm volatile("");
}
// In a while: the caches next to the processor are left to what is wanted before.
inline void prefetch_early(const void* at) {
  __builtin_prefetch(at, 1, 1);
  asm volatile("");
}

}  // namespace flashlab
