// A user's transfers: at most `depth` in flight, each counted, each answered to whoever started it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/storage.hpp"
#include "join/spec.hpp"

namespace flashlab::join {

class IoListener {
 public:
  virtual void io_done(std::uint32_t slot) = 0;

 protected:
  ~IoListener() = default;
};

class IoWindow {
 public:
  IoWindow(io::Channel& channel, std::uint32_t depth, std::uint32_t user, UserResult& result,
           bool trace);
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

  void enter(Phase phase) { phase_ = phase; }
  [[nodiscard]] Nanos now() { return channel_.now(); }
  void compute(Nanos cpu) { channel_.compute(cpu); }

 private:
  struct Flight {
    IoListener* who = nullptr;
    std::uint32_t slot = 0;
    TraceRow row;
  };
  void count(Op op, Bytes offset, Bytes bytes);

  io::Channel& channel_;
  std::uint32_t depth_;
  std::uint32_t user_;
  UserResult& result_;
  bool trace_;
  Phase phase_ = Phase::partition;
  std::uint32_t in_flight_ = 0;
  std::vector<Flight> flights_;  // by tag
  std::vector<Tag> free_tags_;
  Bytes last_end_;
};

}  // namespace flashlab::join
