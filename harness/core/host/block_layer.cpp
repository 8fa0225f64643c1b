#include "host/block_layer.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::host {

BlockLayer::BlockLayer(const HostParameters& p, DeviceModel& device, BlockLayerUser& up)
    : parameters_(p),
      device_(device),
      up_(up),
      scheduler_(make_io_scheduler(p.io_scheduler, device.rotational())) {
  require(p.cores >= 1 && p.cores <= 4096, "cores: must lie between 1 and 4096");
  require(p.threads_per_core >= 1 && p.threads_per_core <= 8,
          "threads_per_core: must lie between 1 and 8");
  require(p.smt_gain >= 0.0 && p.smt_gain <= 1.0, "smt_gain: must lie between 0 and 1");
  require(p.submit_cpu >= Nanos{0} && p.complete_cpu >= Nanos{0},
          "submit_cpu and complete_cpu: must not be negative");
  require(p.max_request.count() >= 4096 && p.max_request.count() % kSectorBytes == 0,
          "max_request: must be a multiple of 512 B, at least 4 KiB");
  in_flight_.resize(device.queue_depth());
  for (Tag tag = device.queue_depth(); tag > 0; --tag) free_tags_.push_back(tag - 1);
}

void BlockLayer::submit(std::uint32_t user, std::uint32_t io, const Request& request, Nanos now) {
  if (parts_left_.size() <= io) parts_left_.resize(io + 1);
  FLASHLAB_CHECK(parts_left_[io] == 0);
  Request part = request;
  Sectors left = request.sectors;
  // A TRIM carries no data: its length is not a transfer's.
  const Sectors most =
      request.op == Op::trim ? request.sectors : to_sectors(parameters_.max_request);
  do {
    part.sectors = std::min(left, most);
    ++parts_left_[io];
    ++outstanding_[static_cast<std::size_t>(request.op)];
    device_.expect(part);
    scheduler_->add({user, io, part}, now);
    part.lba = part.lba + part.sectors;
    left -= part.sectors;
  } while (left > Sectors{0});
  dispatch(now);
}

void BlockLayer::request_done(Tag tag, Nanos now) {
  const BlockRequest done = in_flight_[tag];
  free_tags_.push_back(tag);
  --outstanding_[static_cast<std::size_t>(done.request.op)];
  if (free_tags_.size() == in_flight_.size()) busy_ += now - busy_since_;
  scheduler_->completed(done.user, now);
  if (--parts_left_[done.io] == 0) up_.io_done(done.io, now);
  dispatch(now);
}

void BlockLayer::dispatch(Nanos now) {
  while (!free_tags_.empty()) {
    const Dispatch decision = scheduler_->next(now);
    if (!decision.request) {
      if (decision.ask_again) up_.scheduler_timer_at(*decision.ask_again);
      return;
    }
    if (free_tags_.size() == in_flight_.size()) busy_since_ = now;
    const Tag tag = take_tag(*decision.request);
    ++requests_;
    device_.submit(tag, decision.request->request, now);
  }
}

Tag BlockLayer::take_tag(const BlockRequest& request) {
  const Tag tag = free_tags_.back();
  free_tags_.pop_back();
  in_flight_[tag] = request;
  return tag;
}

}  // namespace flashlab::host
