#include "flash/ssd.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::flash {

namespace {

void validate(const SsdParameters& p) {
  require(p.page.count() >= 512 && p.page.count() % 512 == 0 && p.page.count() <= 1 << 20,
          "page: must be a multiple of 512 B, at most 1 MiB");
  require(p.capacity.count() >= p.page.count() && p.capacity % p.page == Bytes{0},
          "capacity: must be a multiple of the page size");
  require(p.channels >= 1 && p.channels <= 64, "channels: must lie between 1 and 64");
  require(p.dies_per_channel >= 1 && p.dies_per_channel <= 64,
          "dies_per_channel: must lie between 1 and 64");
  require(p.read_page > Nanos{0} && p.program_page > Nanos{0},
          "read_page and program_page: must be above zero");
  require(p.channel_rate.count() >= 1'000'000 && p.link_rate.count() >= 1'000'000,
          "channel_rate and link_rate: must be at least 1 MB/s");
  require(p.command_time >= Nanos{0} && p.write_latency >= Nanos{0},
          "command_time and write_latency: must not be negative");
  require(p.write_buffer >= p.page, "write_buffer: must hold at least one page");
  require(p.queue_depth >= 1, "queue_depth: must be at least 1");
}

}  // namespace

Ssd::Ssd(const SsdParameters& p, Host& host) : parameters_(p), host_(host) {
  validate(p);
  const std::int64_t dies = p.channels * p.dies_per_channel;
  die_free_.resize(static_cast<std::size_t>(dies));
  channel_free_.resize(static_cast<std::size_t>(p.channels));
  die_of_page_.resize(static_cast<std::size_t>(p.capacity / p.page));
  for (std::size_t i = 0; i < die_of_page_.size(); ++i) {
    die_of_page_[i] = static_cast<Die>(i % die_free_.size());
  }
}

void Ssd::submit(Tag tag, const Request& request, Nanos now) {
  FLASHLAB_CHECK(request.op == Op::flush ||
                 (request.sectors > Sectors{0} && request.lba >= Lba{0} &&
                  to_bytes(request.lba + request.sectors) <= parameters_.capacity));
  processor_free_ = std::max(processor_free_, now) + parameters_.command_time;
  DeviceCounters& count = counters_.device;
  const Bytes bytes = to_bytes(request.sectors);
  Nanos end = processor_free_;
  switch (request.op) {
    case Op::read:
      ++count.read_ios;
      count.read_bytes += bytes;
      end = read(request, processor_free_);
      break;
    case Op::write:
      ++count.write_ios;
      count.write_bytes += bytes;
      end = write(request, processor_free_);
      if (request.fua) end = std::max(end, flush(end));
      break;
    case Op::trim:  // no free-space accounting yet: the command costs its handling, no more
      ++count.trim_ios;
      count.trim_bytes += bytes;
      break;
    case Op::flush:
      ++count.flush_ios;
      end = flush(processor_free_);
      break;
  }
  host_.done(tag, end);
}

// Pages stream to the host as they come off their channels: the link is busy for the bytes, and
// free for others between them.
Nanos Ssd::read(const Request& request, Nanos begin) {
  const Bytes first = to_bytes(request.lba);
  const Bytes last = first + to_bytes(request.sectors);
  Nanos end = begin;
  for (std::int64_t page = first / parameters_.page; page * parameters_.page < last; ++page) {
    const Bytes from = std::max(first, page * parameters_.page);
    const Bytes to = std::min(last, (page + 1) * parameters_.page);
    end = std::max(end, over_link(to - from, read_page(page, to - from, begin)));
  }
  return end;
}

Nanos Ssd::read_page(std::int64_t page, Bytes bytes, Nanos begin) {
  const Die die = die_of_page_[static_cast<std::size_t>(page)];
  Nanos& die_free = die_free_[die];
  Nanos& channel = channel_free_[die % channel_free_.size()];
  const Nanos sensed = std::max(begin, die_free) + parameters_.read_page;
  const Nanos sent = std::max(sensed, channel) + transfer_time(bytes, parameters_.channel_rate);
  channel = sent;
  die_free = sent;
  ++counters_.page_reads;
  return sent;
}

Nanos Ssd::write(const Request& request, Nanos begin) {
  const Bytes first = to_bytes(request.lba);
  const Bytes last = first + to_bytes(request.sectors);
  Nanos end = begin;
  for (std::int64_t page = first / parameters_.page; page * parameters_.page < last; ++page) {
    const Bytes from = std::max(first, page * parameters_.page);
    const Bytes to = std::min(last, (page + 1) * parameters_.page);
    const Nanos room = wait_for_buffer(parameters_.page, begin);
    end = over_link(to - from, room);
    buffered_.push_back({program_page(page, end), parameters_.page});
    buffered_bytes_ += parameters_.page;
  }
  return end + parameters_.write_latency;
}

Nanos Ssd::program_page(std::int64_t page, Nanos begin) {
  const auto die = static_cast<Die>(next_die_++ % static_cast<std::int64_t>(die_free_.size()));
  die_of_page_[static_cast<std::size_t>(page)] = die;
  Nanos& die_free = die_free_[die];
  Nanos& channel = channel_free_[die % channel_free_.size()];
  const Nanos start = std::max({begin, die_free, channel});
  channel = start + transfer_time(parameters_.page, parameters_.channel_rate);
  die_free = channel + parameters_.program_page;
  ++counters_.page_programs;
  return die_free;
}

Nanos Ssd::wait_for_buffer(Bytes bytes, Nanos begin) {
  Nanos room = begin;
  while (!buffered_.empty() && (buffered_.front().programmed <= room ||
                                buffered_bytes_ + bytes > parameters_.write_buffer)) {
    room = std::max(room, buffered_.front().programmed);
    buffered_bytes_ -= buffered_.front().bytes;
    buffered_.pop_front();
  }
  return room;
}

Nanos Ssd::flush(Nanos begin) const {
  Nanos end = begin;
  for (const Buffered& b : buffered_) end = std::max(end, b.programmed);
  return end;
}

Nanos Ssd::over_link(Bytes bytes, Nanos ready) {
  link_free_ = std::max(ready, link_free_) + transfer_time(bytes, parameters_.link_rate);
  return link_free_;
}

}  // namespace flashlab::flash
