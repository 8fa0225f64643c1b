// What processes of a Machine wait for: their own transfers, or something that another one brings.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "host/machine.hpp"

namespace flashlab::host {

// Requests that one process has started and waits for together. It must outlive them. `ended` hears
// of the end of each, with its cookie, inside the event loop: it must not pause.
class Transfers final : private IoOwner {
 public:
  using Ended = std::function<void(std::uint32_t cookie)>;

  Transfers(Machine& machine, Process self, Ended ended = {})
      : machine_(machine), self_(self), ended_(std::move(ended)) {}

  void start(const Request& request, std::uint32_t cookie = 0) {
    ++outstanding_;
    machine_.submit(self_, request, *this, cookie);
  }
  void wait() {
    machine_.wait(self_, [&] { return outstanding_ == 0; });
  }
  void run(const Request& request) {
    start(request);
    wait();
  }

 private:
  void io_done(std::uint32_t cookie) override {
    if (ended_) ended_(cookie);
    if (--outstanding_ == 0) machine_.wake(self_);
  }

  Machine& machine_;
  Process self_;
  Ended ended_;
  std::uint32_t outstanding_ = 0;
};

// Processes that wait until somebody has changed something.
class WaitList {
 public:
  explicit WaitList(Machine& machine) : machine_(machine) {}

  template <class Ready>
  void wait(Process self, const Ready& ready) {
    if (ready()) return;
    waiting_.push_back(self);
    machine_.wait(self, [&] {
      if (ready()) return true;
      if (!is_in(self)) waiting_.push_back(self);
      return false;
    });
  }
  void wake_all() {
    for (const Process process : std::exchange(waiting_, {})) machine_.wake(process);
  }

 private:
  [[nodiscard]] bool is_in(Process self) const {
    for (const Process process : waiting_) {
      if (process == self) return true;
    }
    return false;
  }

  Machine& machine_;
  std::vector<Process> waiting_;
};

}  // namespace flashlab::host
