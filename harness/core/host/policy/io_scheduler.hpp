// The kernel's I/O scheduler: which of the waiting block requests goes to the device next, or is it
// better to wait for one that has not come yet?
//
// The block layer owns the requests in flight and the device's queue limit; a scheduler owns the
// waiting ones. One file per policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/device.hpp"
#include "base/units.hpp"

namespace flashlab::host {

struct BlockRequest {
  std::uint32_t user = 0;
  std::uint32_t io = 0;  // the transfer that it is a part of
  Request request;
};

struct Dispatch {
  std::optional<BlockRequest> request;  // nothing: leave the device alone
  std::optional<Nanos> ask_again;       // at the latest, if nothing happens before
};

class IoScheduler {
 public:
  virtual ~IoScheduler() = default;
  virtual void add(const BlockRequest& request, Nanos now) = 0;
  [[nodiscard]] virtual Dispatch next(Nanos now) = 0;
  virtual void completed(std::uint32_t user, Nanos now) = 0;
};

// Throws OperatingError for a name that is not in the table: none, cfq, deadline.
std::unique_ptr<IoScheduler> make_io_scheduler(std::string_view name, bool rotational);

std::unique_ptr<IoScheduler> make_none(bool rotational);
std::unique_ptr<IoScheduler> make_cfq(bool rotational);
std::unique_ptr<IoScheduler> make_deadline(bool rotational);

}  // namespace flashlab::host
