// A host for live devices, in this process: no kernel between.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "live/device.hpp"
#include "stamped.hpp"

namespace flashlab::testing_live {

// Requests that are under way, and how they ended.
class LiveHost {
 public:
  // Called with the errno and, for a read, the data; not while the host is locked.
  using Then = std::function<void(int error, std::span<const std::byte> data)>;

  explicit LiveHost(live::LiveDevice& device) : device_(device) {}
  ~LiveHost() { wait(); }
  LiveHost(const LiveHost&) = delete;
  LiveHost& operator=(const LiveHost&) = delete;

  void read(const Extent& where, Then then = {}) {
    auto ticket = issue(std::move(then));
    ticket->data.resize(static_cast<std::size_t>(to_bytes(where.length()).count()));
    const std::span<std::byte> into = ticket->data;
    device_.read(to_bytes(where.begin), into, std::move(ticket));
  }
  void write(const Extent& where, Version version, Then then = {}) {
    device_.write(to_bytes(where.begin), stamped(where, version), issue(std::move(then)));
  }
  // Durable when it is answered.
  void write_through(const Extent& where, Version version, Then then = {}) {
    device_.write(to_bytes(where.begin), stamped(where, version), issue(std::move(then)), true);
  }
  void trim(const Extent& where, Then then = {}) { device_.trim(where, issue(std::move(then))); }
  void flush(Then then = {}) { device_.flush(issue(std::move(then))); }

  // Until everything has been answered. Returns the number of errors since the last call.
  std::size_t wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answered_ == issued_; });
    return std::exchange(errors_, 0);
  }
  // Until so many requests have been answered, ever.
  void wait_for(std::size_t answers) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answered_ >= answers; });
  }
  [[nodiscard]] std::size_t answered() {
    const std::lock_guard lock(mutex_);
    return answered_;
  }
  // What every sector of an extent holds; nothing for one that is torn or another one's.
  std::vector<std::optional<Version>> versions(const Extent& where) {
    std::vector<std::optional<Version>> found;
    read(where, [&](int error, std::span<const std::byte> data) {
      EXPECT_EQ(error, 0);
      for (std::int64_t i = 0; i < where.length().count(); ++i) {
        const auto sector = data.subspan(static_cast<std::size_t>(i * kSectorBytes),
                                         static_cast<std::size_t>(kSectorBytes));
        found.push_back(version_of(sector, where.begin.index() + i));
      }
    });
    wait();
    return found;
  }

 private:
  struct Question final : live::Ticket {
    explicit Question(LiveHost& h, Then t) : host(h), then(std::move(t)) {}
    ~Question() override { EXPECT_TRUE(was_answered); }
    void reply(int error) override {
      EXPECT_FALSE(std::exchange(was_answered, true)) << "answered twice";
      if (then) then(error, data);
      host.hear(error);
    }
    LiveHost& host;
    Then then;
    std::vector<std::byte> data;
    bool was_answered = false;
  };

  std::unique_ptr<Question> issue(Then then) {
    const std::lock_guard lock(mutex_);
    ++issued_;
    return std::make_unique<Question>(*this, std::move(then));
  }
  void hear(int error) {
    const std::lock_guard lock(mutex_);
    ++answered_;
    errors_ += error != 0 ? 1 : 0;
    changed_.notify_all();
  }

  live::LiveDevice& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t issued_ = 0;
  std::size_t answered_ = 0;
  std::size_t errors_ = 0;
};

}  // namespace flashlab::testing_live
