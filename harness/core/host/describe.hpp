// Parameters and counters of the host: what each one is, and its name; see base/describe.hpp.
#pragma once

#include "base/describe.hpp"
#include "host/block_layer.hpp"
#include "host/job.hpp"

namespace flashlab::host {

template <class V>
void describe(V& v, HostParameters& p) {
  v.required("cores", p.cores, "of the machine");
  v.required("submit_cpu_ns", p.submit_cpu, "system call, block layer and driver, per transfer");
  v.required("complete_cpu_ns", p.complete_cpu, "interrupt and wake-up, per transfer");
  v.required("max_request_bytes", p.max_request, "larger transfers are split");
  describe(v, p.io_scheduler);
  v.optional("threads_per_core", p.threads_per_core, "hardware threads");
  v.optional("smt_gain_ratio", p.smt_gain,
             "what a core's second thread adds, as a share of the first");
}

template <class V>
void describe(V& v, JobParameters& p) {
  v.required("pattern", p.pattern, "sequential, random, hot_cold, zipf");
  v.required("read_ratio", p.read_ratio, "of all requests");
  v.required("trim_ratio", p.trim_ratio, "of all requests; the rest are writes");
  v.required("block_bytes", p.block, "of each request");
  Bytes begin = to_bytes(p.span.begin);
  Bytes end = to_bytes(p.span.end);
  v.required("begin_bytes", begin, "requests stay behind it");
  v.required("end_bytes", end, "... and before it");
  p.span = {to_lba(begin), to_lba(end)};
  v.required("queue_depth", p.depth, "requests outstanding (closed loop)");
  v.required("requests", p.requests, "0: until `duration`");
  v.required("duration_ns", p.duration, "0: until `requests`");
  v.required("interval_ns", p.interval,
             "above 0: open loop, one request every so often, whatever the depth");
  v.required("poisson", p.poisson, "... with exponentially distributed gaps of that mean");
  v.required("hot_data_ratio", p.hot_data_ratio, "hot_cold: the first part of the span ...");
  v.required("hot_access_ratio", p.hot_access_ratio, "... gets this share of the requests");
  v.required("zipf_theta", p.zipf_theta, "zipf: skew, below 1 (Gray et al., SIGMOD 1994)");
  v.required("stream", p.stream, "of writes");
  v.required("fua", p.fua, "of writes");
  v.required("flush_every", p.flush_every, "a flush after so many requests; 0: never");
  v.required("seed", p.seed, "of all that is drawn");
}

}  // namespace flashlab::host
