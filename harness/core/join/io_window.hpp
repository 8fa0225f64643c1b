// All that a user's join asks of the world: transfers, at most `depth` in flight, each counted and
// answered to whoever started it; CPU time; and what the clock says between phases.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "io/storage.hpp"
#include "join/spec.hpp"
#include "join/transcript.hpp"

namespace flashlab::join {

class IoListener {
 public:
  virtual void io_done(std::uint32_t slot) = 0;

 protected:
  ~IoListener() = default;
};

class IoWindow {
 public:
  // `noted`: gets a step for each of these; or nullptr.
  IoWindow(io::Channel& channel, const JoinSpec& spec, std::uint32_t user, UserResult& result,
           std::vector<Step>* noted);
  ~IoWindow() { channel_.drain(); }
  IoWindow(const IoWindow&) = delete;
  IoWindow& operator=(const IoWindow&) = delete;

  // Starts a transfer; `who` hears of its end under `slot`. Waits first while the window is full.
  // With depth 1 the transfer has ended when this returns: the synchronous engine.
  void start(Op op, Bytes offset, std::span<std::byte> buffer, IoListener& who, std::uint32_t slot);
  // Waits for one transfer to end. There must be one.
  void wait_one();
  [[nodiscard]] bool full() const { return in_flight_ == depth_; }
  [[nodiscard]] std::uint32_t depth() const { return depth_; }

  void compute(const Work& work);
  // Ends the phase before, if there is one.
  void enter(Phase phase);
  // Ends the last phase, and puts all phases' times into the result.
  void finish();

 private:
  struct Flight {
    IoListener* who = nullptr;
    std::uint32_t slot = 0;
    TraceRow row;
  };
  void count(Op op, Bytes offset, Bytes bytes);
  void note(const Step& step);

  io::Channel& channel_;
  std::uint32_t depth_;
  CpuCosts cpu_;
  std::uint32_t user_;
  UserResult& result_;
  bool trace_;
  std::vector<Step>* noted_;
  Work not_noted_;
  bool began_ = false;
  Phase phase_ = Phase::partition;
  Nanos entered_;
  std::array<Nanos, kPhases> times_;
  std::uint32_t in_flight_ = 0;
  std::vector<Flight> flights_;  // by tag
  std::vector<Tag> free_tags_;
  Bytes last_end_;
};

}  // namespace flashlab::join
