// Parameters and counters of the join engine: what each one is, and its name; see
// base/describe.hpp.
#pragma once

#include "base/describe.hpp"
#include "join/spec.hpp"

namespace flashlab::join {

template <class V>
void describe(V& v, CpuCosts& p) {
  v.optional("partition_cpu_ns", p.partition, "per record: hash, copy to a write buffer");
  v.optional("build_cpu_ns", p.build, "per record: hash, insert");
  v.optional("probe_cpu_ns", p.probe, "per record: hash, look up");
  v.optional("match_cpu_ns", p.match, "per pair found");
}

template <class V>
void describe(V& v, JoinSpec& p) {
  v.required("algorithm", p.algorithm, "of the join");
  v.required("read_buffer_bytes", p.read_buffer,
             "a build partition must fit; holds it in the join phase");
  v.required("write_buffer_bytes", p.write_buffer,
             "the unit in which partitions are written and read back");
  v.required("input_io_bytes", p.input_io, "the unit in which the inputs are read");
  v.optional("memory_budget_bytes", p.memory_budget,
             "for all buffers of one user; 0: as much as the plan wants");
  v.optional("queue_depth", p.queue_depth,
             "transfers in flight per user; 1 is the paper's synchronous engine");
  v.optional("hash_seed", p.hash_seed, "of the hash function");
  describe(v, p.cpu);
  v.optional("trace", p.trace, "all transfers are recorded");
}

template <class V>
void describe(V& v, UserJob& p) {
  v.required("build_offset_bytes", p.build.offset, "of the smaller input on the device");
  v.required("build_records", p.build.records, "of the smaller input");
  v.required("probe_offset_bytes", p.probe.offset, "of the other input on the device");
  v.required("probe_records", p.probe.records, "of the other input");
  v.required("scratch_begin_bytes", p.scratch.begin, "of the space for partitions");
  v.required("scratch_end_bytes", p.scratch.end, "... and its end");
}

template <class V>
void count(V& v, const IoCounts& c) {
  v("ios", c.ios);
  v("bytes", c.bytes);
  v("by_size_log2", c.by_size);
  v("by_seek_log2", c.by_seek);
}

template <class V>
void count(V& v, const UserResult& r) {
  v("matches", r.matches);
  v("checksum", r.checksum);
  v("partition_ns", r.partition);
  v("join_ns", r.join);
  v("repartition_ns", r.repartition);
  v("elapsed_ns", r.elapsed);
  v("partitions", r.partitions);
  v("role_reversals", r.role_reversals);
  v("overflows", r.overflows);
  v("nested_loops", r.nested_loops);
  v("resident_records", r.resident_records);
  v("memory_bytes", r.memory);
}

}  // namespace flashlab::join
