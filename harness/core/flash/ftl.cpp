#include "flash/ftl.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace flashlab::flash {

namespace {

struct CopyLogs {
  std::uint32_t count = 0;
  bool own_blocks = false;  // some have
};

CopyLogs copy_logs(CopyLogOf log_of, StreamId streams) {
  CopyLogs logs;
  for (StreamId stream = 0; stream < streams; ++stream) {
    const CopyLog log = log_of(stream);
    logs.count = std::max(logs.count, log.log + 1U);
    logs.own_blocks = logs.own_blocks || !log.with_host;
  }
  return logs;
}

}  // namespace

Ftl::Ftl(const Geometry& geometry, const FtlParameters& p, std::vector<Attribution::Range> ranges)
    : geometry_(geometry),
      parameters_(p),
      victim_policy_(make_victim_policy(p.victim)),
      copy_log_of_(find_gc_placement(p.gc_placement)),
      pace_(find_gc_pace(p.gc_pace)),
      random_(p.seed),
      map_(geometry),
      blocks_(geometry),
      attribution_(geometry.lpns(), p.streams, std::move(ranges)),
      gc_logs_(copy_logs(copy_log_of_, p.streams).count),
      live_(geometry.groups()),
      host_blocks_(std::size_t{geometry.groups()} * p.streams),
      host_pages_(p.streams),
      host_group_(p.streams, geometry.groups() - 1),
      gc_blocks_(std::size_t{geometry.groups()} * gc_logs_),
      gc_pages_(std::size_t{geometry.groups()} * gc_logs_),
      collections_(geometry.groups()) {
  require(p.streams >= 1 && p.streams <= 64, "streams: must lie between 1 and 64");
  require(p.reserve_blocks >= 1, "reserve_blocks: collection needs at least 1");
  // With mixed placement a partly filled page of copies keeps its block open behind the host's.
  const bool gc_opens =
      copy_logs(copy_log_of_, p.streams).own_blocks || geometry.slots_per_page() > 1;
  const std::uint32_t open =
      p.streams + (gc_opens ? gc_logs_ : 0) + p.reserve_blocks + pace_.blocks_ahead;
  // With every other block closed, one of them must have an invalid slot: a group never holds more
  // than that many live units less one page.
  const std::uint32_t per_group = geometry.blocks_per_group();
  live_limit_ = per_group <= open
                    ? 0
                    : (per_group - open) * geometry.slots_per_block() - geometry.slots_per_page();
  const std::uint64_t room = std::uint64_t{live_limit_} * geometry.groups();
  const std::uint64_t held =
      std::uint64_t{geometry.lpns()} + std::uint64_t{geometry.groups()} * geometry.slots_per_page();
  require(room >= held,
          "overprovision: " + std::to_string(per_group) +
              " blocks per group leave no room beside " + std::to_string(open) +
              " open and reserved ones; use more over-provisioning, smaller blocks, fewer dies or "
              "allocation global");
}

bool Ftl::trim(Lpn lpn) {
  const Slot slot = map_.find(lpn);
  if (slot == kNoSlot) return false;
  const Block block = geometry_.block_of(slot);
  map_.unbind(lpn, slot, block);
  --live_[geometry_.group_of(block)];
  ++counters_.trimmed_units;
  return true;
}

// Groups take turns page by page, so that neighbouring pages are written and read in parallel. One
// that is full of live data is passed over.
Group Ftl::next_group(StreamId stream) {
  const Group groups = geometry_.groups();
  Group& group = host_group_[stream];
  for (Group tries = 0; tries < groups; ++tries) {
    group = group + 1 == groups ? 0 : group + 1;
    if (live_[group] + geometry_.slots_per_page() <= live_limit_) return group;
  }
  FLASHLAB_CHECK(false);  // excluded by the constructor
}

void Ftl::open_page(OpenBlock& block, OpenPage& page) {
  page.next = geometry_.first_slot(block.block) + block.next_page * geometry_.slots_per_page();
  page.left = geometry_.slots_per_page();
  page.block = block.block;
  ++block.next_page;
  --block.pages_left;
}

// Whether a collection that goes on, or begins, frees any slot.
bool Ftl::gains(Group group) const {
  if (collections_[group].active()) return true;
  const auto full = static_cast<std::int32_t>(geometry_.slots_per_block());
  return std::ranges::any_of(map_.valid_counts(group),
                             [&](std::int32_t count) { return count < full; });
}

std::size_t Ftl::choose_victim(Group group) {
  const VictimView view{map_.valid_counts(group),    PageMap::kWithheld,
                        blocks_.closed_at(group),    blocks_.closings(),
                        geometry_.slots_per_block(), random_};
  const std::size_t victim = victim_policy_->choose(view);
  FLASHLAB_CHECK(victim < view.valid.size() && view.valid[victim] < PageMap::kWithheld);
  return victim;
}

Ftl::OpenBlock& Ftl::gc_block(Group group, StreamId stream) {
  const CopyLog log = copy_log_of_(stream);
  if (log.with_host) return host_block(group, stream);
  return gc_blocks_[std::size_t{group} * gc_logs_ + log.log];
}

bool Ftl::is_new() const {
  return blocks_.closings() == 0 &&
         std::all_of(host_blocks_.begin(), host_blocks_.end(),
                     [](const OpenBlock& block) { return block.next_page == 0; });
}

bool Ftl::has_open_host_page() const { return open_streams_ != 0; }

bool Ftl::in_open_host_page(Slot slot) const {
  const std::uint32_t per_page = geometry_.slots_per_page();
  for (std::uint64_t streams = open_streams_; streams != 0; streams &= streams - 1) {
    const OpenPage& open = host_pages_[static_cast<std::size_t>(std::countr_zero(streams))];
    const Slot first = open.next + open.left - per_page;
    if (slot - first < per_page) return true;
  }
  return false;
}

// A bit for each stream whose host page takes units yet.
void Ftl::find_open_streams() {
  open_streams_ = 0;
  for (std::size_t stream = 0; stream < host_pages_.size(); ++stream) {
    if (host_pages_[stream].left > 0) open_streams_ |= std::uint64_t{1} << stream;
  }
}

void Ftl::open_host_slots(std::vector<Slot>& out) const {
  for (const OpenPage& open : host_pages_) {
    if (open.left == 0) continue;
    const Slot first = geometry_.page_of(open.next) * geometry_.slots_per_page();
    for (Slot slot = first; slot < open.next; ++slot) out.push_back(slot);
  }
}

void Ftl::reset_counters() {
  counters_ = {};
  attribution_.reset();
}

void Ftl::archive(Archive& a) {
  a.one(random_);
  map_.archive(a);
  blocks_.archive(a);
  attribution_.archive(a);
  a.all(counters_, live_, host_blocks_, host_pages_, host_group_, gc_blocks_, gc_pages_,
        collections_);
  if (a.is_restoring()) find_open_streams();
}

}  // namespace flashlab::flash
