#include "join/plan.hpp"

#include <algorithm>
#include <string>

#include "base/check.hpp"
#include "join/arena.hpp"
#include "join/hash_table.hpp"
#include "join/partition.hpp"

namespace flashlab::join {

namespace {

std::int64_t integer_sqrt(std::int64_t n) {
  std::int64_t root = 0;
  for (std::int64_t bit = std::int64_t{1} << 31; bit > 0; bit /= 2) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return root;
}

void validate(const JoinSpec& spec, Bytes block) {
  const auto whole_blocks = [&](Bytes size) { return size > Bytes{0} && size % block == Bytes{0}; };
  const std::string blocks =
      " must be a multiple of the device's block, " + std::to_string(block.count()) + " bytes";
  require(whole_blocks(spec.read_buffer), "read_buffer" + blocks);
  require(whole_blocks(spec.write_buffer), "write_buffer" + blocks);
  require(whole_blocks(spec.input_io), "input_io" + blocks);
  require(
      spec.write_buffer <= spec.read_buffer,
      "write_buffer must not be larger than read_buffer: a partition is read back in units of it");
  require(spec.queue_depth >= 1 && spec.queue_depth <= 4096,
          "queue_depth must lie between 1 and 4096");
  require(spec.memory_budget >= Bytes{0}, "memory_budget must not be negative");
}

Bytes buffers(std::int64_t n, Bytes size) {
  return Bytes{
      static_cast<std::int64_t>(Arena::round_up(static_cast<std::size_t>((n * size).count())))};
}

Bytes arena_size(const JoinSpec& spec, const Plan& plan, Bytes resident) {
  const Bytes read = buffers(1, spec.read_buffer);
  const Bytes input = buffers(plan.input_buffers, std::min(spec.input_io, spec.read_buffer));
  const Bytes units = buffers(plan.unit_buffers, spec.write_buffer);
  const std::int64_t partitions = plan.partitions + (resident > Bytes{0} ? 1 : 0);  // + overflow
  const Bytes write =
      buffers(PartitionWriter::buffers_needed(partitions, spec.queue_depth), spec.write_buffer);
  const Bytes partition_phase = resident + input + write;
  const Bytes join_phase = read + std::max(units, input);
  const Bytes repartition = units + write;
  return std::max({partition_phase, join_phase, repartition});
}

}  // namespace

std::int64_t partitions_for(std::int64_t records, std::int64_t capacity) {
  FLASHLAB_CHECK(capacity > 0);
  if (records <= capacity) return 1;
  for (std::int64_t partitions = ceil_div(records, capacity);; ++partitions) {
    const std::int64_t mean = ceil_div(records, partitions);
    if (mean <= 1 || mean + 4 * integer_sqrt(mean) <= capacity) return partitions;
  }
}

Plan make_plan(const JoinSpec& spec, std::int64_t build_records, Bytes block) {
  validate(spec, block);
  Plan plan;
  const std::int64_t unit_records = spec.write_buffer / kRecordBytes;
  plan.capacity = spec.read_buffer / spec.write_buffer * unit_records;
  plan.partitions = partitions_for(build_records, plan.capacity);
  const auto depth = static_cast<std::int64_t>(spec.queue_depth);
  const Bytes input_io = std::min(spec.input_io, spec.read_buffer);
  plan.input_buffers = std::clamp<std::int64_t>(spec.read_buffer / input_io, 1, depth);
  plan.unit_buffers = std::max<std::int64_t>(depth, 1);

  Bytes resident;
  if (spec.algorithm == Algorithm::hybrid && plan.partitions > 1) {
    // The resident partition's records share the read buffer with nothing else in this phase.
    resident = buffers(1, spec.read_buffer);
    plan.resident_capacity = plan.capacity;
    const std::int64_t wanted = plan.capacity - 4 * integer_sqrt(plan.capacity);
    plan.resident_below = static_cast<std::uint32_t>(std::max<std::int64_t>(wanted, 0) *
                                                     (std::int64_t{1} << 32) / build_records);
    plan.partitions = partitions_for(build_records - wanted, plan.capacity);
  }

  const Bytes table = HashTable::memory(spec.read_buffer);
  plan.arena = arena_size(spec, plan, resident);
  if (spec.memory_budget > Bytes{0}) {
    // Fewer partitions than the read buffer asks for: they overflow and are partitioned again.
    while (plan.arena + table > spec.memory_budget && plan.partitions > 2) {
      --plan.partitions;
      plan.arena = arena_size(spec, plan, resident);
    }
    require(plan.arena + table <= spec.memory_budget,
            "memory_budget of " + std::to_string(spec.memory_budget.count()) +
                " bytes is too small: these buffers need at least " +
                std::to_string((plan.arena + table).count()) + " bytes");
  }
  plan.memory = plan.arena + table;
  return plan;
}

}  // namespace flashlab::join
