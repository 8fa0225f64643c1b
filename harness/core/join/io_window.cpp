#include "join/io_window.hpp"

#include <bit>
#include <utility>

#include "base/check.hpp"

namespace flashlab::join {

IoWindow::IoWindow(io::Channel& channel, const JoinSpec& spec, std::uint32_t user,
                   UserResult& result, std::vector<Step>* noted)
    : channel_(channel),
      depth_(spec.queue_depth),
      cpu_(spec.cpu),
      user_(user),
      result_(result),
      trace_(spec.trace),
      noted_(noted) {
  flights_.resize(depth_);
  for (Tag tag = depth_; tag > 0; --tag) free_tags_.push_back(tag - 1);
}

void IoWindow::compute(const Work& work) {
  if (noted_ != nullptr) not_noted_ += work;
  channel_.compute(work.cost(cpu_));
}

void IoWindow::enter(Phase phase) {
  note({.kind = Step::Kind::enter, .phase = phase});
  const Nanos now = channel_.now();
  if (std::exchange(began_, true)) times_[static_cast<std::size_t>(phase_)] += now - entered_;
  phase_ = phase;
  entered_ = now;
}

void IoWindow::finish() {
  note({.kind = Step::Kind::finish});
  times_[static_cast<std::size_t>(phase_)] += channel_.now() - entered_;
  result_.partition = times_[static_cast<std::size_t>(Phase::partition)];
  result_.repartition = times_[static_cast<std::size_t>(Phase::repartition)];
  result_.join = times_[static_cast<std::size_t>(Phase::join)] + result_.repartition;
  result_.elapsed = result_.partition + result_.join;
}

void IoWindow::note(const Step& step) {
  if (noted_ == nullptr) return;
  noted_->push_back(step);
  noted_->back().work = std::exchange(not_noted_, {});
}

void IoWindow::start(Op op, Bytes offset, std::span<std::byte> buffer, IoListener& who,
                     std::uint32_t slot) {
  while (full()) wait_one();
  const Tag tag = free_tags_.back();
  free_tags_.pop_back();
  ++in_flight_;
  const Bytes bytes{static_cast<std::int64_t>(buffer.size())};
  count(op, offset, bytes);
  note({.kind = op == Op::write ? Step::Kind::write : Step::Kind::read,
        .offset = offset,
        .bytes = bytes});
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
