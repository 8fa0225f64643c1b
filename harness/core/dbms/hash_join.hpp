// The hash join of PostgreSQL that does not fit into memory, as the I/O and the CPU time that it
// costs, again and again over one file system and one drive that age meanwhile
// (papers/trim_fallocate.md; PostgreSQL 12 to 17, nodeHashjoin, buffile).
//
//  - Partition phase: the inner table, then the outer one is read and each tuple written to its
//    batch's file, all files of a side growing together, 8 KiB at a time; the first batch stays in
//    memory. A server has at most so many files open (max_files_per_process): beyond that each
//    write closes the file that was not used for longest, which the file system takes for its end.
//  - Join phase: batch after batch, the inner file is read and deleted at once, then the outer one
//    is read; it is deleted when the next batch begins.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/cancel.hpp"
#include "host/ext4/ext4.hpp"
#include "host/page_cache.hpp"

namespace flashlab::dbms {

struct JoinInput {
  std::int64_t tuples = 0;
  Bytes heap;
  double temp_tuple_bytes = 0;
};

template <class V>
void describe(V& v, JoinInput& p) {
  v.required("tuples", p.tuples, "of the table");
  v.required("heap_bytes", p.heap, "as stored, and read once");
  v.required("temp_tuple_bytes", p.temp_tuple_bytes, "of one in a batch's file");
}

// Per tuple.
struct HashJoinCpu {
  Nanos scan;
  Nanos build;
  Nanos probe;
  Nanos open;
};

template <class V>
void describe(V& v, HashJoinCpu& p) {
  v.required("scan_cpu_ns", p.scan,
             "per tuple: reading it from its table, hashing, writing it to its batch");
  v.required("build_cpu_ns", p.build, "per tuple: from the inner file into the hash table");
  v.required("probe_cpu_ns", p.probe,
             "per tuple: from the outer file: look up, join, give the result away");
  v.optional("open_cpu_ns", p.open, "per file: closing it and opening another one");
}

struct HashJoinSpec {
  JoinInput inner;
  JoinInput outer;
  std::int64_t batches = 2;
  std::int64_t repetitions = 1;
  HashJoinCpu cpu;
  std::int64_t open_files = 990;
  BytesPerSecond table_rate;
  bool settle = false;
  bool trim_after = false;
  std::int64_t traced = -1;
  std::int64_t trace_every = 1;
  std::uint64_t seed = 0;
};

template <class V>
void describe(V& v, HashJoinSpec& p) {
  v.required("inner", p.inner, "the table that the hash table is built of");
  v.required("outer", p.outer, "the other one");
  v.required("batches", p.batches, "that the join is cut into");
  v.optional("repetitions", p.repetitions, "one after the other on the same drive");
  describe(v, p.cpu);
  v.optional("open_files", p.open_files, "that a server has at most (max_files_per_process)");
  v.required("table_rate_bytes_per_s", p.table_rate, "of the disk that the tables lie on");
  v.optional("settle", p.settle, "a repetition ends with all it has freed committed and discarded");
  v.optional("trim_after", p.trim_after, "fstrim after each repetition");
  v.optional("traced", p.traced, "the repetition that is recorded; -1: none");
  v.optional("trace_every", p.trace_every, "so many requests, one of them is recorded");
  v.optional("seed", p.seed, "of all that is drawn");
}

// One repetition; times are the machine's.
struct JoinRun {
  Nanos begun;
  Nanos partitioned;
  Nanos joined;
  Nanos settled;
  host::ext4::Counters files;  // since the first repetition
};

template <class V>
void count(V& v, const JoinRun& run) {
  v("begun_ns", run.begun);
  v("partitioned_ns", run.partitioned);
  v("joined_ns", run.joined);
  v("settled_ns", run.settled);
}

struct TracedRequest {
  Nanos when;
  Request request;
};

struct HashJoinResult {
  std::vector<JoinRun> runs;
  std::int64_t temp_blocks = 0;  // written by a repetition, in the page cache's blocks
  host::PageCacheCounters cache;
  host::ext4::AllocatorCounters allocator;
  std::uint64_t device_requests = 0;
  std::vector<TracedRequest> trace;
};

// `repeated` is called after each repetition. Throws OperatingError for parameters that make no
// join, or a device that is too small.
HashJoinResult run_hash_joins(host::Machine& machine, const host::PageCacheParameters& cache,
                              const host::ext4::Parameters& files, const HashJoinSpec& spec,
                              const std::function<void()>& repeated, const Cancel& cancel);

}  // namespace flashlab::dbms
