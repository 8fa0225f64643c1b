// Which of the queued commands does the drive serve next?
//
// A scheduler reads a const view and answers with an index; the drive owns the queue. One file per
// policy, and for each one here: its declaration, its line in the table, its parameters. A policy
// may keep state of its own (a sweep's direction), which it saves in archive(), never a reference
// to the view.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/archive.hpp"
#include "base/units.hpp"
#include "disk/mechanics.hpp"

namespace flashlab::disk {

struct Queued {
  Lba lba;
  Sectors sectors;
  bool write = false;
  Nanos arrival;
  Target target;  // of `lba`
};

struct QueueView {
  std::span<const Queued> queue;  // by arrival, never empty, all arrived by `now`, any may be next
  HeadState head;
  Nanos now;
  const Mechanics& mechanics;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  [[nodiscard]] virtual std::size_t choose(const QueueView& view) = 0;
  virtual void archive(Archive& /*a*/) {}
};

struct SchedulerParameters {
  std::string policy = "fcfs";
};

template <class V>
void describe(V& v, SchedulerParameters& p) {
  v.required("scheduler", p.policy, "which of the queued commands is served next");
}

std::unique_ptr<Scheduler> make_fcfs(const SchedulerParameters& parameters);
std::unique_ptr<Scheduler> make_elevator(const SchedulerParameters& parameters);
std::unique_ptr<Scheduler> make_sptf(const SchedulerParameters& parameters);

struct SchedulerEntry {
  std::string_view name;
  std::unique_ptr<Scheduler> (*make)(const SchedulerParameters& parameters);
};
inline constexpr std::array kSchedulers{
    SchedulerEntry{"fcfs", make_fcfs},
    SchedulerEntry{"elevator", make_elevator},
    SchedulerEntry{"sptf", make_sptf},
};

// Throws OperatingError for a name that is not in the table.
std::unique_ptr<Scheduler> make_scheduler(const SchedulerParameters& parameters);

}  // namespace flashlab::disk
