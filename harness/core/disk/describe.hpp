// Parameters and counters of hard disks: what each one is, and its name; see base/describe.hpp.
// Those of policies are described beside them (disk/policy).
#pragma once

#include "base/describe.hpp"
#include "disk/geometry.hpp"
#include "disk/hdd.hpp"
#include "disk/mechanics.hpp"

namespace flashlab::disk {

// The skew is what the arm needs: whoever describes that sets it.
template <class V>
void describe(V& v, GeometryParameters& p) {
  v.required("capacity_bytes", p.capacity, "what the host sees; rounded up to whole cylinders");
  v.required("rpm", p.rpm, "of the platters");
  v.required("heads", p.heads, "one per surface");
  v.required("zones", p.zones, "of equal width, each with its own sectors per track");
  v.required("outer_rate_bytes_per_s", p.outer_rate,
             "sustained, that is with the switching between tracks");
  v.required("inner_rate_bytes_per_s", p.inner_rate, "the same, of the innermost zone");
}

template <class V>
void describe(V& v, SeekParameters& p) {
  v.required("head_switch_ns", p.head_switch, "to another head of the same cylinder");
  v.required("track_to_track_seek_ns", p.track_to_track, "to the next cylinder");
  v.required("average_seek_ns", p.average, "over a third of the full stroke");
  v.required("full_stroke_seek_ns", p.full_stroke, "from the outermost to the innermost cylinder");
  v.required("write_settle_ns", p.write_settle,
             "a write waits until the head is surely on its track");
}

template <class V>
void describe(V& v, HddParameters& p) {
  describe(v, p.geometry);
  describe(v, p.seek);
  p.geometry.head_skew = p.seek.head_switch;
  p.geometry.cylinder_skew = p.seek.track_to_track;
  v.required("link_rate_bytes_per_s", p.link_rate, "to the host");
  v.required("command_overhead_ns", p.command_overhead,
             "controller time of every command, before it can be served");
  v.required("cache_bytes", p.cache, "read segments and write cache share it");
  v.required("read_segments", p.read_segments, "that the cache is divided into for reads");
  v.required("write_cache", p.write_cache, "a write is acknowledged when its data is in the cache");
  v.optional("write_share_ratio", p.write_share,
             "writes' part of the cache, reads have the rest; 0: all of it for each");
  v.required("destage_idle_ns", p.destage_idle,
             "quiet time after which dirty data is written back");
  v.required("queue_depth", p.queue_depth, "commands that the drive takes at once (NCQ)");
  describe(v, p.scheduler);
  v.beside_profile();
  v.required("start_angle_ns", p.start_angle,
             "phase of the platter at time 0: what repetitions vary");
}

template <class V>
void count(V& v, const HddCounters& c) {
  count(v, c.device);
  v("buffer_hits", c.buffer_hits);
  v("stream_hits", c.stream_hits);
  v("media_reads", c.media_reads);
  v("media_writes", c.media_writes);
  v("media_read_bytes", c.media_read_bytes);
  v("media_write_bytes", c.media_write_bytes);
  v("positioning_ns", c.positioning);
  v("transferring_ns", c.transferring);
}

}  // namespace flashlab::disk
