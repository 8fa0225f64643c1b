// What processes of a Machine wait for: their own transfers, or something that another one brings.
#pragma once

#include <utility>
#include <vector>

#include "host/machine.hpp"

namespace flashlab::host {

// Requests that one process has started and waits for together. It must outlive them.
class Transfers final : private IoOwner {
 public:
  Transfers(Machine& machine, Process self) : machine_(machine), self_(self) {}

  void start(const Request& request) {
    ++outstanding_;
    machine_.submit(self_, request, *this, 0);
  }
  void wait() {
    machine_.wait(self_, [&] { return outstanding_ == 0; });
  }
  void run(const Request& request) {
    start(request);
    wait();
  }

 private:
  void io_done(std::uint32_t /*cookie*/) override {
    if (--outstanding_ == 0) machine_.wake(self_);
  }

  Machine& machine_;
  Process self_;
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
