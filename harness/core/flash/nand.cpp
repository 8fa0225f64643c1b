#include "flash/nand.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.hpp"

namespace flashlab::flash {

namespace {

// So many entries are looked through about as quickly as they are found by a hash.
constexpr std::size_t kLookedThrough = 1024;

constexpr std::int64_t kNormal = 1000;  // thousandths of an operation's time that it takes

bool is_slowdown(std::int64_t thousandths) {
  return thousandths >= kNormal && thousandths <= 1000 * kNormal;
}

}  // namespace

Nand::Nand(const Geometry& geometry, const NandParameters& p)
    : geometry_(geometry),
      parameters_(p),
      ways_(geometry.dies() / geometry.channels()),
      read_transfer_(p.channel_rate),
      unit_transfer_(),
      page_transfer_(),
      seats_(geometry.dies()),
      slowed_(geometry.dies(), kNormal),
      times_(geometry.dies(), cell_times(kNormal)),
      queues_(geometry.dies()),
      free_(geometry.dies()),
      keys_(geometry.dies(), kUnknown),
      channels_(geometry.channels()),
      remembered_(geometry.blocks()) {
  require(p.read_page > Nanos{0} && p.program_page > Nanos{0} && p.erase_block > Nanos{0} &&
              p.slc_program_page > Nanos{0},
          "read_page, program_page, slc_program_page and erase_block: must be above zero");
  require(p.channel_rate.count() >= 1'000'000, "channel_rate: must be at least 1 MB/s");
  require(p.jitter_ratio >= 0.0 && p.jitter_ratio < 1.0, "jitter: must lie between 0 and 1");
  Prng seeds(p.seed);
  for (std::uint32_t channel = 0; channel < geometry.channels(); ++channel) {
    random_.emplace_back(seeds.next());
  }
  unit_transfer_ = transfer_time(geometry.unit(), p.channel_rate);
  page_transfer_ = transfer_time(geometry.page(), p.channel_rate);
  for (Die die = 0; die < geometry.dies(); ++die) {
    const std::uint32_t channel = geometry.channel_of(die);
    seats_[die] = static_cast<std::uint16_t>(channel * ways_ + die / geometry.channels());
  }
}

void Nand::present(Nanos now) {
  present_ = now;
  while (forgotten_ != next_ && entry(forgotten_).end <= now) {
    --remembered_[geometry_.block_of(entry(forgotten_).page * geometry_.slots_per_page())];
    ++forgotten_;
  }
  if (!moved_.empty() && moved_first_ <= now) forget_moved(now);
}

void Nand::forget_moved(Nanos now) {
  std::erase_if(moved_, [&](const Moved& m) { return m.programmed <= now; });
  moved_first_ = kUnknown;
  for (const Moved& moved : moved_) moved_first_ = std::min(moved_first_, moved.programmed);
}

// Not what begins at `now`: something may still come that goes before it.
void Nand::catch_up(Nanos now) {
  for (std::uint32_t channel = 0; channel < geometry_.channels(); ++channel) {
    catch_up(channel, now);
  }
}

void Nand::catch_up(std::uint32_t channel, Nanos now) { advance(channel, now - Nanos{1}); }

void Nand::program(Page page, Die die, Work work) {
  const std::size_t at = seat(die);
  ++counters_.page_programs;
  if (work == Work::gc) {
    // What was read last and is programmed next on the same die is one operation, a copy: unless
    // it was read earlier, and may have begun.
    Op* const last = last_op(at);
    if (last != nullptr && last->kind == Kind::gc_read && last->ready == ready_) {
      last->kind = Kind::copy;
      last->number = 1;
    } else {
      push(at, {ready_, 0, 0, Kind::gc_program});
    }
    return;
  }
  if (slc_) ++counters_.slc_programs;
  const std::uint32_t position = next_;
  append_entry({page, die, kUnknown});
  push(at, {ready_, position, 0, slc_ ? Kind::slc_program : Kind::program});
}

void Nand::copies(Die die, Page /*to*/, std::uint32_t pages) {
  counters_.page_reads += pages;
  counters_.page_programs += pages;
  const auto units = static_cast<std::uint16_t>(geometry_.slots_per_page());
  push(seat(die), {ready_, pages, units, Kind::copy});
}

void Nand::read(Die die, std::uint32_t units) {
  ++counters_.page_reads;
  push(seat(die), {ready_, 0, static_cast<std::uint16_t>(units), Kind::gc_read});
}

Nand::Op* Nand::last_op(std::size_t seat) {
  return queues_[seat].empty() ? nullptr : &queues_[seat].back();
}

void Nand::fold(Die die) {
  ++counters_.page_reads;
  ++counters_.page_programs;
  push(seat(die), {ready_, 0, static_cast<std::uint16_t>(geometry_.slots_per_page()), Kind::fold});
}

void Nand::erase(Block block) {
  const Slot first = geometry_.first_slot(block);
  for (std::uint32_t i = 0; i < geometry_.width(); ++i) {
    ++counters_.block_erases;
    push(seat(geometry_.die_of(first + i * geometry_.slots_per_page())),
         {ready_, 0, 0, Kind::erase});
  }
}

// Pages of a block that is collected may still wait for their program. They stay in doubt until
// then, wherever they are moved.
void Nand::settle(Block block, const PageMap& map) {
  if (remembered_[block] == 0) return;
  std::vector<Lpn> waiting;
  for (std::uint32_t position = forgotten_; position != next_; ++position) {
    const Page page = entry(position).page;
    if (geometry_.block_of(page * geometry_.slots_per_page()) != block) continue;
    const Nanos end = end_of(position);
    if (end <= present_) continue;
    waiting.clear();
    unprogrammed_of(page, map, waiting);
    for (const Lpn lpn : waiting) moved_.push_back({lpn, end});
    moved_first_ = std::min(moved_first_, end);
  }
}

Nanos Nand::host_read(Die die, Bytes bytes, Nanos ready) {
  const std::uint32_t channel = geometry_.channel_of(die);
  const std::size_t at = seat(die);
  advance(channel, ready);
  // What has begun sensing is finished first; what has not, waits.
  if (!queues_[at].empty()) {
    const Op& first = queues_[at].front();
    if (senses_first(first.kind) && std::max(free_[at], first.ready) < ready) commit(channel, at);
  }
  const Nanos begin = std::max(ready, free_[at]);
  const Nanos length = read_transfer_(bytes);
  const Nanos sensed = begin + varied(channel, times_[at].read);
  const Nanos end = channels_[channel].take(sensed, length) + length;
  free_[at] = end;
  ++counters_.page_reads;
  counters_.host_read += end - begin;
  rekey(at);
  return end;
}

// What begins later than the first end that is known ends later, too.
Nanos Nand::release_first() {
  while (true) {
    const auto next = std::min_element(keys_.begin(), keys_.end());
    if (!ends_.empty() && ends_.front() <= *next) break;
    FLASHLAB_CHECK(*next != kUnknown);
    const auto seat = static_cast<std::size_t>(next - keys_.begin());
    commit(static_cast<std::uint32_t>(seat / ways_), seat);
  }
  std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
  const Nanos end = ends_.back();
  ends_.pop_back();
  return end;
}

Nanos Nand::drain(Nanos begin) {
  if (drained_ - forgotten_ > next_ - forgotten_) drained_ = forgotten_;  // it was forgotten
  for (; drained_ != next_; ++drained_) {
    drained_end_ = std::max(drained_end_, end_of(drained_));
  }
  Nanos end = std::max(begin, drained_end_);
  for (const Moved& moved : moved_) end = std::max(end, moved.programmed);
  return end;
}

bool Nand::holds(Page page, Block block, Nanos now) {
  const Entry* const found = find(page, block);
  if (found == nullptr) return false;
  catch_up(geometry_.channel_of(found->die), now);
  return found->end > now;
}

bool Nand::replaceable(Page page, Block block, Nanos now) {
  const Entry* const found = find(page, block);
  if (found == nullptr || found->end != kUnknown) return false;
  catch_up(geometry_.channel_of(found->die), now);
  return found->end == kUnknown;
}

Nand::Entry* Nand::find(Page page, Block block) {
  if (remembered_[block] == 0) return nullptr;
  if (is_indexed()) {
    // Positions from the first one that is remembered: they descend, until one lies before it.
    const std::uint32_t remembered = next_ - forgotten_;
    std::uint32_t before = remembered;
    for (std::uint32_t at = newest(page) - forgotten_; at < before;
         at = older_[(at + forgotten_) & (older_.size() - 1)] - forgotten_) {
      Entry& candidate = entry(at + forgotten_);
      if (candidate.page == page) return &candidate;
      before = at;
    }
    return nullptr;
  }
  for (std::uint32_t position = next_; position != forgotten_; --position) {
    Entry& candidate = entry(position - 1);
    if (candidate.page == page) return &candidate;
  }
  return nullptr;
}

void Nand::unprogrammed(Nanos now, const PageMap& map, std::vector<Lpn>& out) const {
  for (std::uint32_t position = forgotten_; position != next_; ++position) {
    if (entry(position).end > now) unprogrammed_of(entry(position).page, map, out);
  }
  for (const Moved& moved : moved_) {
    if (moved.programmed > now) out.push_back(moved.lpn);
  }
}

void Nand::unprogrammed_of(Page page, const PageMap& map, std::vector<Lpn>& out) const {
  const Slot first = page * geometry_.slots_per_page();
  for (Slot slot = first; slot < first + geometry_.slots_per_page(); ++slot) {
    if (map.is_valid(slot)) out.push_back(map.lpn_at(slot));
  }
}

void Nand::restart(Nanos now) {
  for (Ring<Op>& queue : queues_) queue.clear();
  std::fill(free_.begin(), free_.end(), now);
  std::fill(keys_.begin(), keys_.end(), kUnknown);
  for (Lane& channel : channels_) channel.reset(now);
  for (; forgotten_ != next_; ++forgotten_) {
    --remembered_[geometry_.block_of(entry(forgotten_).page * geometry_.slots_per_page())];
  }
  ends_.clear();
  drained_ = next_;
  drained_end_ = Nanos{};
  moved_.clear();
  moved_first_ = kUnknown;
  present_ = ready_ = now;
}

void Nand::slow(Die die, std::int64_t thousandths, Nanos now) {
  require(is_slowdown(thousandths), "factor: a die can be 1 to 1000 times as slow");
  catch_up(now);
  const std::size_t at = seat(die);
  if (!queues_[at].empty()) {
    const Op& first = queues_[at].front();
    if (senses_first(first.kind) && std::max(free_[at], first.ready) < now) {
      commit(geometry_.channel_of(die), at);
    }
  }
  slowed_[die] = thousandths;
  times_[at] = cell_times(thousandths);
  rekey(at);
}

Nand::CellTimes Nand::cell_times(std::int64_t thousandths) const {
  const auto slowed = [&](Nanos time) { return time * thousandths / kNormal; };
  return {slowed(parameters_.read_page), slowed(parameters_.program_page),
          slowed(parameters_.slc_program_page), slowed(parameters_.erase_block)};
}

Nanos Nand::next_idle(Nanos when, Nanos now) {
  while (true) {
    Nanos idle = now;
    Nanos due = now;
    std::size_t first = 0;
    for (std::size_t seat = 0; seat < keys_.size(); ++seat) {
      if (keys_[seat] == kUnknown) {
        if (free_[seat] > when) idle = std::min(idle, free_[seat]);
      } else if (keys_[seat] < due) {
        due = keys_[seat];
        first = seat;
      }
    }
    // What the die is given then may be due at that moment, and before the other.
    if (idle <= due) return idle;
    commit(static_cast<std::uint32_t>(first / ways_), first);
  }
}

void Nand::push(std::size_t seat, const Op& op) {
  queues_[seat].push_back(op);
  if (queues_[seat].size() == 1) rekey(seat);
}

void Nand::rekey(std::size_t seat) {
  if (queues_[seat].empty()) {
    keys_[seat] = kUnknown;
    return;
  }
  keys_[seat] = key_of(queues_[seat].front(), free_[seat], times_[seat]);
}

Nanos Nand::key_of(const Op& first, Nanos free, const CellTimes& cells) {
  const Nanos begin = std::max(free, first.ready);
  return senses_first(first.kind) ? begin + cells.read : begin;
}

// Written for conditional moves: which die is next is as good as random.
std::size_t Nand::next_seat(std::uint32_t channel) const {
  const std::size_t first = std::size_t{channel} * ways_;
  std::size_t next = first;
  Nanos least = keys_[first];
  for (std::size_t seat = first + 1; seat < first + ways_; ++seat) {
    const bool sooner = keys_[seat] < least;
    least = sooner ? keys_[seat] : least;
    next = sooner ? seat : next;
  }
  return next;
}

void Nand::advance(std::uint32_t channel, Nanos now) {
  while (true) {
    const std::size_t next = next_seat(channel);
    if (keys_[next] > now || keys_[next] == kUnknown) return;
    commit(channel, next);
  }
}

void Nand::step(std::uint32_t channel) {
  const std::size_t next = next_seat(channel);
  FLASHLAB_CHECK(keys_[next] != kUnknown);
  commit(channel, next);
}

// The first operation that waits on a die gets its times.
void Nand::commit(std::uint32_t channel, std::size_t seat) {
  Ring<Op>& queue = queues_[seat];
  Op& first = queue.front();
  // Field by field: a copy of all of it waits for the part that was stored last.
  const Kind kind = first.kind;
  const std::uint32_t number = first.number;
  const Nanos ready = first.ready;
  const Nanos out = unit_transfer_ * first.units;
  if (kind == Kind::copy && number > 1) {
    first.number = number - 1;
  } else {
    queue.pop_front();
  }
  Lane& lane = channels_[channel];
  const CellTimes& cells = times_[seat];
  const Nanos begin = std::max(free_[seat], ready);
  const Nanos wanted = keys_[seat];
  Nanos end;
  switch (kind) {
    case Kind::program:
    case Kind::slc_program: {
      const bool slc = kind == Kind::slc_program;
      end = lane.take(wanted, page_transfer_) + page_transfer_ +
            varied(channel, slc ? cells.slc_program : cells.program);
      entry(number).end = end;
      ends_.push_back(end);
      std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
      counters_.host_program += end - begin;
      break;
    }
    case Kind::gc_program:
      end = lane.take(wanted, page_transfer_) + page_transfer_ + varied(channel, cells.program);
      counters_.gc_program += end - begin;
      break;
    case Kind::gc_read:
      end = lane.take(wanted, out) + out;
      counters_.gc_read += end - begin;
      break;
    case Kind::copy:
    case Kind::fold: {
      const Nanos moved = lane.take(wanted, out + page_transfer_) + out;
      end = moved + page_transfer_ + varied(channel, cells.program);
      if (kind == Kind::fold) {
        counters_.fold += end - begin;
      } else {
        counters_.gc_read += moved - begin;
        counters_.gc_program += end - moved;
      }
      break;
    }
    case Kind::erase:
      end = wanted + varied(channel, cells.erase);
      counters_.erase += end - begin;
      break;
  }
  free_[seat] = end;
  keys_[seat] = queue.empty() ? kUnknown : key_of(queue.front(), end, cells);
  lane.forget_before(std::min(present_, wanted));
}

Nanos Nand::end_of(std::uint32_t position) {
  const std::uint32_t channel = geometry_.channel_of(entry(position).die);
  while (entry(position).end == kUnknown) step(channel);
  return entry(position).end;
}

Nanos Nand::varied(std::uint32_t channel, Nanos nominal) {
  if (parameters_.jitter_ratio <= 0.0) return nominal;
  const double uniform = static_cast<double>(random_[channel].next() >> 11) * 0x1p-53;
  const double factor = 1.0 + parameters_.jitter_ratio * (2.0 * uniform - 1.0);
  return Nanos{static_cast<std::int64_t>(static_cast<double>(nominal.count()) * factor)};
}

void Nand::append_entry(const Entry& added) {
  if (next_ - forgotten_ == entries_.size()) {
    std::vector<Entry> larger(entries_.size() * 2);
    for (std::uint32_t position = forgotten_; position != next_; ++position) {
      larger[position & (larger.size() - 1)] = entry(position);
    }
    entries_.swap(larger);
    index_all();
  }
  if (is_indexed()) index(next_, added.page);
  entry(next_++) = added;
  ++remembered_[geometry_.block_of(added.page * geometry_.slots_per_page())];
}

void Nand::index(std::uint32_t position, Page page) {
  std::uint32_t& newest_one = newest(page);
  older_[position & (older_.size() - 1)] = newest_one;
  newest_one = position;
}

void Nand::index_all() {
  if (entries_.size() <= kLookedThrough) return older_.clear();
  const std::size_t hashes = entries_.size() * 2;
  index_bits_ = static_cast<std::uint32_t>(std::countr_zero(hashes));
  older_.assign(entries_.size(), forgotten_ - 1);
  newest_.assign(hashes, forgotten_ - 1);
  for (std::uint32_t position = forgotten_; position != next_; ++position) {
    index(position, entry(position).page);
  }
}

void Nand::archive(Archive& a) {
  a.block(random_.data(), random_.size());
  a.all(present_, ready_, slc_);
  a.block(slowed_.data(), slowed_.size());
  if (a.is_restoring()) {
    for (Die die = 0; die < geometry_.dies(); ++die) {
      require(is_slowdown(slowed_[die]), "the saved state is of a device with other parameters");
      times_[seat(die)] = cell_times(slowed_[die]);
    }
  }
  for (Ring<Op>& queue : queues_) queue.archive(a);
  a.all(free_, keys_);
  for (Lane& channel : channels_) channel.archive(a);
  a.all(entries_, forgotten_, next_, ends_, remembered_, moved_, counters_);
  if (!a.is_restoring()) return;
  index_all();
  drained_ = forgotten_;
  drained_end_ = Nanos{};
  forget_moved(Nanos{INT64_MIN});
}

}  // namespace flashlab::flash
