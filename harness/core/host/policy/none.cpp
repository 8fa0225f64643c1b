// In order of arrival, as fast as the device takes them.
#include "base/ring.hpp"
#include "host/policy/io_scheduler.hpp"

namespace flashlab::host {

namespace {

class None final : public IoScheduler {
 public:
  void add(const BlockRequest& request, Nanos /*now*/) override { waiting_.push_back(request); }

  Dispatch next(Nanos /*now*/) override {
    if (waiting_.empty()) return {};
    const BlockRequest first = waiting_.front();
    waiting_.pop_front();
    return {first, std::nullopt};
  }

  void completed(std::uint32_t /*user*/, Nanos /*now*/) override {}

 private:
  Ring<BlockRequest> waiting_;
};

}  // namespace

std::unique_ptr<IoScheduler> make_none(const IoSchedulerParameters& /*p*/, bool /*rotational*/) {
  return std::make_unique<None>();
}

}  // namespace flashlab::host
