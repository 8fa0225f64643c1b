#include "host/fiber.hpp"

#include <cstdint>
#include <utility>

#include "base/check.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace flashlab::host {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

// AddressSanitizer has to be told that the stack changes.
#ifdef __SANITIZE_ADDRESS__
void leave_stack(void** kept, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(kept, bottom, size);
}
void arrive_on_stack(void* kept, const void** bottom, std::size_t* size) {
  __sanitizer_finish_switch_fiber(kept, bottom, size);
}
#else
void leave_stack(void** /*kept*/, const void* /*bottom*/, std::size_t /*size*/) {}
void arrive_on_stack(void* /*kept*/, const void** /*bottom*/, std::size_t* /*size*/) {}
#endif

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique<std::byte[]>(kStackBytes)) {
  FLASHLAB_CHECK(getcontext(&first_) == 0);
  first_.uc_stack.ss_sp = stack_.get();
  first_.uc_stack.ss_size = kStackBytes;
  // makecontext passes ints only: the pointer travels as two halves.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&first_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() { abandon(); }

void Fiber::enter(unsigned high, unsigned low) {
  const auto self = (static_cast<std::uintptr_t>(high) << 32) | low;
  reinterpret_cast<Fiber*>(self)->run();
}

void Fiber::run() {
  arrive_on_stack(nullptr, &resumer_stack_, &resumer_stack_bytes_);
  try {
    body_();
  } catch (const Abandoned&) {
    // asked for
  } catch (...) {
    error_ = std::current_exception();
  }
  ended_ = true;
  leave_stack(nullptr, resumer_stack_, resumer_stack_bytes_);
  _longjmp(resumer_, 1);  // never to come back: a context without a successor must not return
}

void Fiber::switch_in() {
  if (_setjmp(resumer_) != 0) {
    arrive_on_stack(resumer_kept_, nullptr, nullptr);
    return;
  }
  leave_stack(&resumer_kept_, stack_.get(), kStackBytes);
  if (started_) _longjmp(self_, 1);
  started_ = true;
  setcontext(&first_);
}

void Fiber::resume() {
  FLASHLAB_CHECK(!ended_);
  switch_in();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Fiber::pause() {
  if (_setjmp(self_) == 0) {
    leave_stack(&self_kept_, resumer_stack_, resumer_stack_bytes_);
    _longjmp(resumer_, 1);
  }
  arrive_on_stack(self_kept_, &resumer_stack_, &resumer_stack_bytes_);
  if (abandoned_) throw Abandoned{};
}

void Fiber::abandon() {
  if (!started_ || ended_) return;
  abandoned_ = true;
  switch_in();
}

}  // namespace flashlab::host
