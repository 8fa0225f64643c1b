#include "join/join.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "join/arena.hpp"
#include "join/hash.hpp"
#include "join/hash_table.hpp"
#include "join/io_window.hpp"
#include "join/partition.hpp"
#include "join/read_stream.hpp"

namespace flashlab::join {

namespace {

// A hash that has not split a partition in this many levels will not: its keys repeat.
constexpr std::int64_t kMaxLevels = 8;

// Records on the device, to be read through buffers of `unit` bytes.
struct Side {
  std::vector<Piece> pieces;
  std::int64_t records = 0;
  Bytes unit;
  std::int64_t buffers = 1;
};

// Which partition a key belongs to, or kResident.
class Router {
 public:
  static constexpr std::uint32_t kResident = UINT32_MAX;

  Router(PartitionHash hash, std::int64_t partitions, std::uint32_t resident_below)
      : hash_(hash),
        partitions_(static_cast<std::uint64_t>(partitions)),
        resident_below_(resident_below),
        range_((std::uint64_t{1} << 32) - resident_below) {}

  [[nodiscard]] std::uint32_t operator()(std::int64_t key) const {
    const std::uint32_t h = hash_(key);
    if (h < resident_below_) return kResident;
    if (resident_below_ == 0) return scale(h, static_cast<std::uint32_t>(partitions_));
    return static_cast<std::uint32_t>((h - resident_below_) * partitions_ / range_);
  }

 private:
  PartitionHash hash_;
  std::uint64_t partitions_;
  std::uint32_t resident_below_;
  std::uint64_t range_;
};

// The build records that a hybrid join keeps in memory. Should they not fit, which repeated keys
// can bring about, all of them go to the partition `overflow` and the join goes on as Grace.
class Residents {
 public:
  Residents(std::span<std::byte> area, std::int64_t capacity, std::uint32_t overflow)
      : records_(reinterpret_cast<Record*>(area.data())),
        capacity_(capacity),
        overflow_(overflow) {}

  void place(const Record& record, PartitionWriter& writer) {
    if (!spilled_ && count_ < capacity_) {
      records_[count_++] = record;
      return;
    }
    for (std::int64_t i = 0; i < count_; ++i) writer.append(overflow_, records_[i]);
    count_ = 0;
    spilled_ = true;
    writer.append(overflow_, record);
  }

  [[nodiscard]] bool spilled() const { return spilled_; }
  [[nodiscard]] std::uint32_t overflow() const { return overflow_; }
  [[nodiscard]] std::span<const Record> records() const {
    return {records_, static_cast<std::size_t>(count_)};
  }

 private:
  Record* records_;
  std::int64_t capacity_;
  std::uint32_t overflow_;
  std::int64_t count_ = 0;
  bool spilled_ = false;
};

class Join {
 public:
  Join(io::Channel& channel, Bytes block, const JoinSpec& spec, const UserJob& job,
       std::uint32_t user, UserResult& result, std::vector<Step>* noted)
      : spec_(spec),
        job_(job),
        block_(block),
        plan_(make_plan(spec, job.build.records, block)),
        result_(result),
        arena_(plan_.arena),
        table_(area()),
        window_(channel, spec, user, result, noted),
        space_(job.scratch, spec.write_buffer) {
    channel.announce(arena_.all());
    result.memory = plan_.memory;
    result.partitions = plan_.partitions;
  }

  void run() {
    if (plan_.partitions == 1 && plan_.resident_below == 0) {
      window_.enter(Phase::join);
      join_in_memory(side_of(job_.build), side_of(job_.probe));
    } else {
      window_.enter(Phase::partition);
      auto [build, probe] = plan_.resident_below > 0 ? partition_hybrid() : partition_both();
      window_.enter(Phase::join);
      for (std::size_t i = 0; i < build.size(); ++i) join_pair(build[i], probe[i], 1);
    }
    window_.finish();
  }

 private:
  using Partitions = std::vector<Partition>;

  // The read buffer: always the arena's first bytes, so that the table's records stay in place.
  std::span<std::byte> area() {
    arena_.reset();
    return arena_.take(spec_.read_buffer);
  }

  std::span<std::byte> buffers(const Side& side) { return arena_.take(side.buffers * side.unit); }

  [[nodiscard]] Side side_of(const Relation& relation) const {
    Side side;
    side.records = relation.records;
    side.unit = std::min(spec_.input_io, spec_.read_buffer);
    side.buffers = plan_.input_buffers;
    const std::int64_t per_piece = side.unit / kRecordBytes;
    for (std::int64_t at = 0; at < relation.records; at += per_piece) {
      const std::int64_t n = std::min(per_piece, relation.records - at);
      const Bytes size = ceil_div((n * kRecordBytes).count(), block_.count()) * block_;
      side.pieces.push_back({relation.offset + at * kRecordBytes, size, n});
    }
    return side;
  }

  [[nodiscard]] Side side_of(const Partition& partition) const {
    return {partition.pieces, partition.records, spec_.write_buffer, plan_.unit_buffers};
  }

  PartitionWriter make_writer(std::int64_t partitions) {
    const std::int64_t n = PartitionWriter::buffers_needed(partitions, spec_.queue_depth);
    return {window_,
            space_,
            static_cast<std::uint32_t>(partitions),
            arena_.take(n * spec_.write_buffer),
            spec_.write_buffer,
            block_};
  }

  template <class Place>
  void for_each_record(const Side& side, std::span<std::byte> memory, Place place) {
    ReadStream stream(window_, side.pieces, memory, side.unit);
    for (auto records = stream.next(); !records.empty(); records = stream.next()) {
      for (const Record& record : records) place(record);
    }
  }

  Partitions split(const Side& side, std::int64_t partitions, const PartitionHash& hash) {
    arena_.reset();
    const std::span<std::byte> memory = buffers(side);
    PartitionWriter writer = make_writer(partitions);
    const Router route(hash, partitions, 0);
    for_each_record(side, memory, [&](const Record& r) { writer.append(route(r.content.key), r); });
    return writer.finish();
  }

  std::pair<Partitions, Partitions> partition_both() {
    const PartitionHash hash(spec_.hash_seed, 0);
    Partitions build = split(side_of(job_.build), plan_.partitions, hash);
    Partitions probe = split(side_of(job_.probe), plan_.partitions, hash);
    return {std::move(build), std::move(probe)};
  }

  std::pair<Partitions, Partitions> partition_hybrid() {
    const Router route(PartitionHash(spec_.hash_seed, 0), plan_.partitions, plan_.resident_below);
    Residents residents(area(), plan_.resident_capacity,
                        static_cast<std::uint32_t>(plan_.partitions));
    Partitions build = split_build(route, residents);
    result_.resident_records = static_cast<std::int64_t>(residents.records().size());
    Partitions probe = split_probe(route, residents);
    return {std::move(build), std::move(probe)};
  }

  Partitions split_build(const Router& route, Residents& residents) {
    const Side side = side_of(job_.build);
    (void)area();  // holds the residents
    const std::span<std::byte> memory = buffers(side);
    PartitionWriter writer = make_writer(plan_.partitions + 1);
    for_each_record(side, memory, [&](const Record& r) {
      const std::uint32_t partition = route(r.content.key);
      if (partition == Router::kResident) {
        residents.place(r, writer);
      } else {
        writer.append(partition, r);
      }
    });
    return writer.finish();
  }

  Partitions split_probe(const Router& route, const Residents& residents) {
    build_table(residents.records());
    const Side side = side_of(job_.probe);
    (void)area();  // holds the residents
    const std::span<std::byte> memory = buffers(side);
    PartitionWriter writer = make_writer(plan_.partitions + 1);
    std::vector<Record> pending;  // probe records of the residents, looked up in groups
    for_each_record(side, memory, [&](const Record& r) {
      const std::uint32_t partition = route(r.content.key);
      if (partition != Router::kResident) return writer.append(partition, r);
      if (residents.spilled()) return writer.append(residents.overflow(), r);
      pending.push_back(r);
      if (pending.size() < 256) return;
      probe_table(pending);
      pending.clear();
    });
    probe_table(pending);
    return writer.finish();
  }

  void build_table(std::span<const Record> records) {
    table_.clear(static_cast<std::int64_t>(records.size()));
    insert(records);
  }

  void insert(std::span<const Record> records) {
    table_.insert(records);
    window_.compute({.built = static_cast<std::int64_t>(records.size())});
  }

  void probe_table(std::span<const Record> records) {
    const Matches found = table_.probe(records);
    result_.matches += found.count;
    result_.checksum += found.checksum;
    window_.compute({.probed = static_cast<std::int64_t>(records.size()),
                     .matched = static_cast<std::int64_t>(found.count)});
  }

  void join_pair(Partition& first, Partition& second, std::int64_t level) {
    const bool reversed = second.records < first.records;
    Partition& build = reversed ? second : first;
    Partition& probe = reversed ? first : second;
    if (build.records > 0) {
      result_.role_reversals += reversed ? 1 : 0;
      if (fits(build)) {
        join_in_memory(side_of(build), side_of(probe));
      } else if (build.one_key() || level > kMaxLevels) {
        nested_loop(build, probe);
      } else {
        return repartition(build, probe, level);
      }
    }
    give_back(build);
    give_back(probe);
  }

  [[nodiscard]] bool fits(const Partition& build) const {
    return static_cast<std::int64_t>(build.pieces.size()) * spec_.write_buffer <= spec_.read_buffer;
  }

  // With more than one transfer in flight the probe side is read ahead while the table is built.
  void join_in_memory(const Side& build, const Side& probe) {
    const std::span<std::byte> table_area = area();
    ReadStream build_stream(window_, build.pieces, table_area, build.unit);
    ReadStream probe_stream(window_, probe.pieces, buffers(probe), probe.unit);
    table_.clear(build.records);
    for (auto records = build_stream.next(); !records.empty(); records = build_stream.next()) {
      if (build_stream.all_started() && window_.depth() > 1) probe_stream.top_up();
      insert(records);
    }
    for (auto records = probe_stream.next(); !records.empty(); records = probe_stream.next()) {
      probe_table(records);
    }
  }

  // The pair goes through the next hash function; what is left of it is joined pair by pair.
  void repartition(Partition& build, Partition& probe, std::int64_t level) {
    ++result_.overflows;
    window_.enter(Phase::repartition);
    const std::int64_t partitions =
        std::clamp<std::int64_t>(partitions_for(build.records, plan_.capacity), 2,
                                 std::max<std::int64_t>(plan_.partitions, 2));
    const PartitionHash hash(spec_.hash_seed, level);
    Partitions builds = split(side_of(build), partitions, hash);
    give_back(build);
    Partitions probes = split(side_of(probe), partitions, hash);
    give_back(probe);
    window_.enter(Phase::join);
    for (std::size_t i = 0; i < builds.size(); ++i) join_pair(builds[i], probes[i], level + 1);
  }

  // One read buffer full of the build side at a time, each against the whole probe side.
  void nested_loop(const Partition& build, const Partition& probe) {
    ++result_.nested_loops;
    const std::size_t per_load = static_cast<std::size_t>(spec_.read_buffer / spec_.write_buffer);
    for (std::size_t at = 0; at < build.pieces.size(); at += per_load) {
      const std::size_t n = std::min(per_load, build.pieces.size() - at);
      Side load{{}, 0, spec_.write_buffer, plan_.unit_buffers};
      for (std::size_t i = at; i < at + n; ++i) {
        load.pieces.push_back(build.pieces[i]);
        load.records += build.pieces[i].records;
      }
      join_in_memory(load, side_of(probe));
    }
  }

  void give_back(Partition& partition) {
    for (const Piece& piece : partition.pieces) space_.give_back(piece.offset);
    partition.pieces.clear();
  }

  const JoinSpec& spec_;
  const UserJob& job_;
  Bytes block_;
  Plan plan_;
  UserResult& result_;
  Arena arena_;
  HashTable table_;
  IoWindow window_;  // after the arena: it goes first, and waits until no transfer uses a buffer
  Space space_;
};

}  // namespace

Bytes scratch_needed(const JoinSpec& spec, const Relation& build, const Relation& probe,
                     Bytes block) {
  const Plan plan = make_plan(spec, build.records, block);
  const std::int64_t unit_records = spec.write_buffer / kRecordBytes;
  const std::int64_t units = ceil_div(build.records, unit_records) +
                             ceil_div(probe.records, unit_records) + 2 * (plan.partitions + 1);
  return units * spec.write_buffer;
}

std::vector<UserResult> run_joins(io::Storage& storage, const JoinSpec& spec,
                                  std::span<const UserJob> jobs, const Cancel& cancel,
                                  Transcript* transcript) {
  require(!jobs.empty(), "users: there must be at least one");
  for (const UserJob& job : jobs) {
    (void)make_plan(spec, job.build.records, storage.block());
    require(job.build.records >= 0 && job.probe.records >= 0 && job.scratch.begin >= Bytes{0} &&
                job.scratch.end <= storage.capacity(),
            "the inputs and the space for partitions do not fit the device");
  }
  std::vector<UserResult> results(jobs.size());
  if (transcript != nullptr) transcript->begin(spec, jobs, storage.block());
  storage.run(
      static_cast<std::uint32_t>(jobs.size()), spec.queue_depth,
      [&](std::uint32_t user, io::Channel& channel) {
        std::vector<Step>* noted = transcript == nullptr ? nullptr : &transcript->steps(user);
        Join(channel, storage.block(), spec, jobs[user], user, results[user], noted).run();
      },
      cancel);
  if (transcript != nullptr) transcript->end(results);
  return results;
}

}  // namespace flashlab::join
