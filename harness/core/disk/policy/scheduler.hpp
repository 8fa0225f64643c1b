// Which of the queued commands does the drive serve next?
//
// A scheduler reads a const view and answers with an index; the drive owns the queue. One file per
// policy; a policy may keep state of its own (a sweep's direction), which it saves in archive(),
// never a reference to the view.
#pragma once

#include <memory>
#include <span>
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

// Throws OperatingError for a name that is not in the table: fcfs, elevator, sptf.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name);

std::unique_ptr<Scheduler> make_fcfs();
std::unique_ptr<Scheduler> make_elevator();
std::unique_ptr<Scheduler> make_sptf();

}  // namespace flashlab::disk
