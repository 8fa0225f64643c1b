// A repetition against the join: on any machine the same results, times and traces.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "io/memory.hpp"
#include "io/virtual.hpp"
#include "join/join.hpp"
#include "join/record.hpp"
#include "serial_device.hpp"

namespace flashlab::join {
namespace test_transcript {

using namespace literals;

std::vector<RecordContent> records(std::size_t n, std::uint64_t distinct, Prng& random) {
  std::vector<RecordContent> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    RecordContent& c = out[i];
    c = {static_cast<std::int64_t>(random.below(distinct)), i, {7, 8}, 0};
    c.signature = signature_of(c);
  }
  return out;
}

struct Inputs {
  std::vector<RecordContent> build;
  std::vector<RecordContent> probe;

  [[nodiscard]] std::vector<UserJob> jobs(std::int64_t users) const {
    std::vector<UserJob> out;
    for (std::int64_t user = 0; user < users; ++user) {
      out.push_back({{Bytes{0}, static_cast<std::int64_t>(build.size())},
                     {1_MiB, static_cast<std::int64_t>(probe.size())},
                     {2_MiB + user * 4_MiB, 6_MiB + user * 4_MiB}});
    }
    return out;
  }
};

// A drive and a host of random speed, with the inputs in place.
struct World {
  World(const Inputs& inputs, Prng& random, bool has_contents)
      : storage(
            [&](Host& host) {
              const testing_host::SerialSpeed speed{
                  Nanos{static_cast<std::int64_t>(random.below(200'000))},
                  BytesPerSecond{static_cast<std::int64_t>(1 + random.below(100)) << 20}};
              return std::make_unique<testing_host::SerialDevice>(host, 64_MiB, speed);
            },
            {.cores = static_cast<std::int64_t>(1 + random.below(3)),
             .submit_cpu = Nanos{static_cast<std::int64_t>(random.below(9'000))},
             .complete_cpu = Nanos{static_cast<std::int64_t>(random.below(9'000))},
             .max_request = 512_KiB,
             .io_scheduler = {"none"}},
            kRecordBytes, Bytes{sizeof(RecordContent)}, std::make_shared<io::ChunkPool>(),
            has_contents) {
    storage.mount(Bytes{0}, std::as_bytes(std::span(inputs.build)));
    storage.mount(1_MiB, std::as_bytes(std::span(inputs.probe)));
  }

  io::VirtualStorage storage;
};

JoinSpec random_spec(Prng& random) {
  JoinSpec spec;
  spec.algorithm = random.below(2) == 0 ? Algorithm::grace : Algorithm::hybrid;
  spec.write_buffer = Bytes{512} * static_cast<std::int64_t>(1 + random.below(4));
  spec.read_buffer = spec.write_buffer * static_cast<std::int64_t>(1 + random.below(20));
  spec.input_io = Bytes{512} * static_cast<std::int64_t>(1 + random.below(6));
  spec.hash_seed = random.next();
  return spec;
}

void on_another_cpu(JoinSpec& spec, Prng& random) {
  for (Nanos* each : {&spec.cpu.partition, &spec.cpu.build, &spec.cpu.probe, &spec.cpu.match}) {
    *each = Nanos{static_cast<std::int64_t>(random.below(3'000))};
  }
  spec.trace = random.below(2) == 0;
}

Inputs random_inputs(Prng& random) {
  const std::uint64_t distinct = 1 + random.below(random.below(3) == 0 ? 3 : 500);
  return {records(random.below(600), distinct, random),
          records(random.below(900), distinct, random)};
}

auto numbers(const UserResult& r) {
  return std::tuple(r.matches, r.checksum, r.partition, r.join, r.repartition, r.elapsed,
                    r.partitions, r.role_reversals, r.overflows, r.nested_loops, r.resident_records,
                    r.memory);
}

void expect_equal(const UserResult& found, const UserResult& expected) {
  EXPECT_EQ(numbers(found), numbers(expected));
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    for (std::size_t op = 0; op < 2; ++op) {
      const IoCounts& a = found.io[phase][op];
      const IoCounts& b = expected.io[phase][op];
      EXPECT_EQ(std::tie(a.ios, a.bytes, a.by_size, a.by_seek),
                std::tie(b.ios, b.bytes, b.by_size, b.by_seek));
    }
  }
  ASSERT_EQ(found.trace.size(), expected.trace.size());
  for (std::size_t i = 0; i < found.trace.size(); ++i) {
    const TraceRow& a = found.trace[i];
    const TraceRow& b = expected.trace[i];
    ASSERT_EQ(std::tie(a.submitted, a.completed, a.lba, a.bytes, a.user, a.op, a.phase),
              std::tie(b.submitted, b.completed, b.lba, b.bytes, b.user, b.op, b.phase));
  }
}

TEST(Transcript, RepeatedOnAnyMachineIsTheJoinThere) {
  Prng random(5);
  bool repartitioned = false;
  for (int round = 0; round < 120; ++round) {
    const Inputs inputs = random_inputs(random);
    const auto jobs = inputs.jobs(static_cast<std::int64_t>(1 + random.below(3)));
    JoinSpec spec = random_spec(random);
    Transcript transcript;
    on_another_cpu(spec, random);
    World first(inputs, random, true);
    const auto one = run_joins(first.storage, spec, jobs, Cancel(), &transcript);
    repartitioned |= one[0].overflows > 0;
    on_another_cpu(spec, random);
    const std::uint64_t machine = random.next();
    Prng same(machine);
    World joins(inputs, same, true);
    const auto expected = run_joins(joins.storage, spec, jobs, Cancel());
    Prng again(machine);
    World repeats(inputs, again, false);
    const auto found = repeat_joins(repeats.storage, spec, jobs, Cancel(), transcript);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i]);
    ASSERT_FALSE(HasFailure()) << round;
    EXPECT_EQ(repeats.storage.block_layer().requests(), joins.storage.block_layer().requests());
    EXPECT_EQ(repeats.storage.now(), joins.storage.now());
  }
  EXPECT_TRUE(repartitioned);  // or a phase was never tried
}

struct Noted {
  Noted() {
    spec.write_buffer = Bytes{512};
    spec.read_buffer = 4_KiB;
    spec.input_io = 2_KiB;
    World world(inputs, random, true);
    (void)run_joins(world.storage, spec, jobs, Cancel(), &transcript);
  }
  void expect_refused(io::Storage& storage, const JoinSpec& other, const std::vector<UserJob>& by) {
    EXPECT_THROW((void)repeat_joins(storage, other, by, Cancel(), transcript), OperatingError);
  }

  Prng random{9};
  Inputs inputs{records(300, 100, random), records(300, 100, random)};
  std::vector<UserJob> jobs = inputs.jobs(1);
  JoinSpec spec;
  Transcript transcript;
};

TEST(Transcript, DeepQueuesHaveNone) {
  Noted noted;
  noted.spec.queue_depth = 2;
  World world(noted.inputs, noted.random, true);
  EXPECT_THROW((void)run_joins(world.storage, noted.spec, noted.jobs, Cancel(), &noted.transcript),
               OperatingError);
}

TEST(Transcript, IsNotRepeatedAsAnotherJoin) {
  Noted noted;
  World world(noted.inputs, noted.random, false);
  JoinSpec other = noted.spec;
  other.hash_seed = 1;
  noted.expect_refused(world.storage, other, noted.jobs);
  other = noted.spec;
  other.queue_depth = 2;
  noted.expect_refused(world.storage, other, noted.jobs);
  noted.expect_refused(world.storage, noted.spec, noted.inputs.jobs(2));
  EXPECT_NO_THROW(
      (void)repeat_joins(world.storage, noted.spec, noted.jobs, Cancel(), noted.transcript));
}

TEST(Transcript, NeverWritesWhereDataIsKept) {
  Noted noted;
  World world(noted.inputs, noted.random, true);
  noted.expect_refused(world.storage, noted.spec, noted.jobs);
  io::MemoryStorage memory(64_MiB, Bytes{512});
  noted.expect_refused(memory, noted.spec, noted.jobs);
}

TEST(Transcript, OfAJoinThatFailedIsNone) {
  Noted noted;
  Cancel cancel;
  cancel.raise();
  auto storage = io::MemoryStorage(64_MiB, Bytes{512});
  EXPECT_THROW((void)run_joins(storage, noted.spec, noted.jobs, cancel, &noted.transcript),
               OperatingError);
  World world(noted.inputs, noted.random, false);
  noted.expect_refused(world.storage, noted.spec, noted.jobs);
}

}  // namespace test_transcript
}  // namespace flashlab::join
