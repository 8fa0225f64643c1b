#include "io/path_probe.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "io/file.hpp"

namespace flashlab::io {

namespace {

constexpr std::size_t kAlignment = 4096;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

PathProbe probe_path(const std::string& path, Op op, Bytes size, Bytes span, std::uint32_t count,
                     std::uint32_t depth) {
  require(op == Op::read || op == Op::write, "probe: reads or writes only");
  require(size.count() % static_cast<std::int64_t>(kAlignment) == 0 && size > Bytes{0} &&
              span >= size && depth >= 1,
          "probe: the size must be a multiple of 4 KiB and fit");
  FileStorage file(path);
  const auto length = static_cast<std::size_t>(size.count());
  const std::unique_ptr<void, Free> memory(std::aligned_alloc(kAlignment, length * depth));
  FLASHLAB_CHECK(memory != nullptr);
  std::memset(memory.get(), 0, length * depth);
  auto* buffers = static_cast<std::byte*>(memory.get());
  PathProbe probe;
  const Cancel never;
  file.run(
      1, depth,
      [&](std::uint32_t /*user*/, Channel& channel) {
        Prng random(1);
        std::vector<Nanos> begun(depth);
        std::uint32_t started = 0;
        const auto start = [&](Tag tag) {
          const auto place = random.below(static_cast<std::uint64_t>(span / size));
          begun[tag] = channel.now();
          channel.submit(
              {op, size * static_cast<std::int64_t>(place), {buffers + length * tag, length}, tag});
          ++started;
        };
        const Nanos begin = channel.now();
        for (Tag tag = 0; tag < std::min(depth, count); ++tag) start(tag);
        while (probe.latencies_ns.size() < count) {
          const Tag tag = channel.wait();
          probe.latencies_ns.push_back((channel.now() - begun[tag]).count());
          if (started < count) start(tag);
        }
        probe.elapsed_ns = (channel.now() - begin).count();
      },
      never);
  return probe;
}

}  // namespace flashlab::io
