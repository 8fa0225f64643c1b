#include "join/io_window.hpp"

#include <bit>

#include "base/check.hpp"

namespace flashlab::join {

IoWindow::IoWindow(io::Channel& channel, std::uint32_t depth, std::uint32_t user,
                   UserResult& result, bool trace)
    : channel_(channel), depth_(depth), user_(user), result_(result), trace_(trace) {
  flights_.resize(depth);
  for (Tag tag = depth; tag > 0; --tag) free_tags_.push_back(tag - 1);
}

void IoWindow::start(Op op, Bytes offset, std::span<std::byte> buffer, IoListener& who,
                     std::uint32_t slot) {
  while (full()) wait_one();
  const Tag tag = free_tags_.back();
  free_tags_.pop_back();
  ++in_flight_;
  const Bytes bytes{static_cast<std::int64_t>(buffer.size())};
  count(op, offset, bytes);
  Flight& flight = flights_[tag];
  flight.who = &who;
  flight.slot = slot;
  if (trace_) flight.row = {channel_.now(), Nanos{0}, to_lba(offset), bytes, user_, op, phase_};
  channel_.submit({op, offset, buffer, tag});
  if (depth_ == 1) wait_one();
}

void IoWindow::wait_one() {
  FLASHLAB_CHECK(in_flight_ > 0);
  const Tag tag = channel_.wait();
  --in_flight_;
  free_tags_.push_back(tag);
  Flight& flight = flights_[tag];
  if (trace_) {
    flight.row.completed = channel_.now();
    result_.trace.push_back(flight.row);
  }
  flight.who->io_done(flight.slot);
}

void IoWindow::count(Op op, Bytes offset, Bytes bytes) {
  IoCounts& counts = result_.io[static_cast<std::size_t>(phase_)][op == Op::write ? 1 : 0];
  const Bytes jump = offset > last_end_ ? offset - last_end_ : last_end_ - offset;
  const auto sectors = static_cast<std::uint64_t>(to_sectors(jump).count());
  ++counts.ios;
  counts.bytes += bytes;
  // Its type is the argument's before GCC 13, and int by the standard.
  const auto size_bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes.count())));
  ++counts.by_size[static_cast<std::size_t>(size_bits - 1)];
  ++counts.by_seek[static_cast<std::size_t>(std::bit_width(sectors))];
  last_end_ = offset + bytes;
}

}  // namespace flashlab::join
