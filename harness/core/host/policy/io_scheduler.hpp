// The kernel's I/O scheduler: which of the waiting block requests goes to the device next, or is it
// better to wait for one that has not come yet?
//
// The block layer owns the requests in flight and the device's queue limit; a scheduler owns the
// waiting ones. One file per policy, and for each one here: its declaration, its line in the table,
// its parameters.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

struct IoSchedulerParameters {
  std::string policy = "none";
};

template <class V>
void describe(V& v, IoSchedulerParameters& p) {
  v.required("io_scheduler", p.policy, "which of the waiting requests goes to the device next");
}

std::unique_ptr<IoScheduler> make_none(const IoSchedulerParameters& p, bool rotational);
std::unique_ptr<IoScheduler> make_cfq(const IoSchedulerParameters& p, bool rotational);
std::unique_ptr<IoScheduler> make_deadline(const IoSchedulerParameters& p, bool rotational);

struct IoSchedulerEntry {
  std::string_view name;
  std::unique_ptr<IoScheduler> (*make)(const IoSchedulerParameters& p, bool rotational);
};
inline constexpr std::array kIoSchedulers{
    IoSchedulerEntry{"none", make_none},
    IoSchedulerEntry{"cfq", make_cfq},
    IoSchedulerEntry{"deadline", make_deadline},
};

// Throws OperatingError for a name that is not in the table.
std::unique_ptr<IoScheduler> make_io_scheduler(const IoSchedulerParameters& parameters,
                                               bool rotational);

}  // namespace flashlab::host
