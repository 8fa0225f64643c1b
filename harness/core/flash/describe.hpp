// Parameters and counters of flash drives: what each one is, and its name; see base/describe.hpp.
// Those of policies are described beside them (flash/policy).
#pragma once

#include "base/describe.hpp"
#include "base/device.hpp"
#include "base/prng.hpp"
#include "flash/ftl.hpp"
#include "flash/geometry.hpp"
#include "flash/nand.hpp"
#include "flash/policy/slc.hpp"
#include "flash/policy/trim.hpp"
#include "flash/ssd.hpp"

namespace flashlab::flash {

template <class V>
void describe(V& v, GeometryParameters& p) {
  v.required("capacity_bytes", p.capacity, "what the host sees");
  v.required("overprovision_ratio", p.overprovision_ratio,
             "physical over logical size, minus 1; rounded up to blocks");
  v.required("page_bytes", p.page, "of one plane");
  v.required("map_unit_bytes", p.map_unit, "what the map maps: one logical page");
  v.required("planes", p.planes, "of a die, programmed at once");
  v.required("pages_per_block", p.pages_per_block, "of one plane");
  v.required("channels", p.channels, "that dies share for their transfers");
  v.required("dies_per_channel", p.dies_per_channel, "that work side by side");
  v.required("allocation", p.allocation, "what blocks are striped over: one die (per_die), or all");
}

template <class V>
void describe(V& v, NandParameters& p) {
  v.required("read_page_ns", p.read_page, "tR: cells to page register");
  v.required("program_page_ns", p.program_page, "tPROG, all planes of a die at once");
  v.required("erase_block_ns", p.erase_block, "tBERS, all planes of a die at once");
  v.required("slc_program_page_ns", p.slc_program_page, "of a page in the SLC cache");
  v.required("channel_rate_bytes_per_s", p.channel_rate, "between the dies and the controller");
  v.optional("jitter_ratio", p.jitter_ratio,
             "each operation on the cells takes 1 +- this, uniformly");
}

template <class V>
void count_operations(V& v, const NandCounters& c) {
  v("page_reads", c.page_reads);
  v("page_programs", c.page_programs);
  v("slc_programs", c.slc_programs);
  v("block_erases", c.block_erases);
}

template <class V>
void count_die_time(V& v, const NandCounters& c) {
  v("die_host_read_ns", c.host_read);
  v("die_host_program_ns", c.host_program);
  v("die_gc_read_ns", c.gc_read);
  v("die_gc_program_ns", c.gc_program);
  v("die_fold_ns", c.fold);
  v("die_erase_ns", c.erase);
}

template <class V>
void describe(V& v, FtlParameters& p) {
  describe(v, p.victim);
  v.required("gc_placement", p.gc_placement, "where a collection puts what it copies");
  v.required("gc_pace", p.gc_pace, "how much of a collection is done before it must be");
  v.required("reserve_blocks", p.reserve_blocks,
             "free blocks per group that are kept for collections");
  v.required("streams", p.streams, "that the drive can keep apart");
}

// What is on flash, in bytes of `unit` each.
template <class V>
void count_units(V& v, const FtlCounters& c, Bytes unit, Bytes folded) {
  const auto bytes = [&](std::uint64_t units) { return unit * static_cast<std::int64_t>(units); };
  v("nand_host_bytes", bytes(c.host_units));
  v("nand_copied_bytes", bytes(c.copied_units));
  v("nand_padded_bytes", bytes(c.padded_units));
  v("nand_folded_bytes", folded);
  v("nand_write_bytes", bytes(c.host_units + c.copied_units + c.padded_units) + folded);
}

template <class V>
void count_collections(V& v, const FtlCounters& c) {
  v("collections", c.erases);
  v("idle_collections", c.idle_collections);
  v("gc_page_reads", c.gc_page_reads);
}

template <class V>
void count(V& v, const TrimCounters& c) {
  v("firmware_trim_command_ns", c.command_time);
  v("firmware_trim_buffer_ns", c.buffer_time);
  v("firmware_trim_map_ns", c.map_time);
  v("trim_ranges", c.ranges);
  v("trim_slices", c.slices);
}

// Of a drive that puts TRIMs off, and of no other.
template <class V>
void count_delay(V& v, const TrimCounters& c) {
  v("firmware_trim_list_ns", c.list_time);
  v("firmware_trim_idle_ns", c.idle_time);
  v("firmware_trim_drain_ns", c.drain_time);
  v("firmware_trim_forced_ns", c.forced_time);
}

template <class V>
void count(V& v, const TrimDelayStatus& s) {
  v("trim_pending_ranges", s.pending_ranges);
  v("trim_pending_ranges_high", s.pending_high);
  v("trim_list_entries", s.list_entries);
  v("trim_list_entries_high", s.list_high);
  v("trim_list_lookups", s.list_lookups);
  v("trim_list_probes", s.list_probes);
  v("trim_writes_while_pending", s.writes_while_pending);
  v("trim_writes_noted", s.writes_noted);
  v("trim_blocks_kept", s.blocks_kept);
  v("trim_merged_ranges", s.merged_ranges);
  v("trim_idle_slices", s.idle_slices);
  v("trim_drained_slices", s.drained_slices);
  v("trim_forced_slices", s.forced_slices);
  v("trim_reads_of_pending", s.reads_of_pending);
  v("trim_yields", s.yields);
  v("trim_drains", s.drains);
  v("trim_full_tables", s.full_tables);
  v("trim_forgotten_blocks", s.forgotten_blocks);
}

// Of a drive whose SLC cache knows what it holds, and of no other.
template <class V>
void count(V& v, const SlcStatus& s, Bytes page) {
  const auto bytes = [&](std::uint64_t pages) { return page * static_cast<std::int64_t>(pages); };
  v("slc_folded_idle_bytes", bytes(s.folded_idle));
  v("slc_folded_pressed_bytes", bytes(s.folded_pressed));
  v("slc_dropped_bytes", bytes(s.dropped));
}

template <class V>
void describe(V& v, SsdParameters& p) {
  describe(v, p.geometry);
  describe(v, p.nand);
  v.required("link_rate_bytes_per_s", p.link_rate, "to the host");
  v.required("command_time_ns", p.command_time,
             "of the firmware, for every command; one after another");
  v.optional("write_command_time_ns", p.write_command_time,
             "for a write, which also needs a place; else the same");
  v.required("read_latency_ns", p.read_latency, "of every read, on top: occupies nothing");
  v.required("write_latency_ns", p.write_latency,
             "from the last byte over the link to the acknowledgement");
  v.required("write_buffer_bytes", p.write_buffer, "RAM for what is not programmed yet");
  v.required("power_loss_protection", p.power_loss_protection,
             "what was acknowledged survives a power cut");
  describe(v, p.slc);
  describe(v, p.ftl);
  v.required("placement", p.placement, "which stream a write belongs to");
  describe(v, p.trim);
  v.required("background_gc", p.background_gc, "the drive collects when it is idle");
  v.required("background_idle_ns", p.background_idle,
             "quiet time after which the drive works for itself");
  v.optional("background_target", p.background_target,
             "free blocks per group that it then aims at, above the reserve");
  v.required("queue_depth", p.queue_depth, "commands that the drive takes at once");
  v.beside_profile();
  v.optional("seed", p.ftl.seed, "of jitter and of the random choices of policies");
  p.nand.seed = mix64(p.ftl.seed + 1);
  v.optional("ranges", p.ranges,
             "(name, begin and end in bytes, stream), ascending and disjoint: counted apart");
}

template <class V>
void count_buffer(V& v, const SsdCounters& c) {
  v("buffer_hits", c.buffer_hits);
  v("unmapped_reads", c.unmapped_reads);
  v("merge_reads", c.merge_reads);
}

// Of the drive and its parts.
template <class V>
void count(V& v, const Ssd& ssd) {
  const SsdCounters& c = ssd.counters();
  const FtlCounters& ftl = ssd.ftl().counters();
  const NandCounters& nand = ssd.nand().counters();
  const Geometry& geometry = ssd.ftl().geometry();
  const auto bytes = [](Bytes each, std::uint64_t n) {
    return each * static_cast<std::int64_t>(n);
  };
  count(v, c.device);
  count_units(v, ftl, geometry.unit(), bytes(geometry.page(), c.folded_pages));
  v("coalesced_bytes", bytes(geometry.unit(), c.coalesced_units));
  v("unmapped_bytes", bytes(geometry.unit(), ftl.trimmed_units));
  count_buffer(v, c);
  count_operations(v, nand);
  count_collections(v, ftl);
  v("firmware_command_ns", c.command_time);
  count(v, c.trim);
  if (const auto delay = ssd.trim_status()) {
    count_delay(v, c.trim);
    count(v, *delay);
  }
  count_die_time(v, nand);
  if (const auto slc = ssd.slc_status()) count(v, *slc, geometry.page());
}

}  // namespace flashlab::flash
