// A function with a stack of its own that can pause in the middle: how blocking engine code runs in
// virtual time, one user at a time, without threads and hence without races.
//
// The stack is made by makecontext; from then on switching is _setjmp and _longjmp, which unlike
// swapcontext make no system call: a simulated join switches some ten million times.
#pragma once

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace flashlab::host {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it pauses or ends. An exception that leaves the body is thrown from here.
  void resume();
  // Called from inside the body: back to whoever resumed it. Throws Abandoned after abandon().
  void pause();
  // Unwinds a paused body, so that its destructors run.
  void abandon();
  [[nodiscard]] bool ended() const { return ended_; }

  struct Abandoned {};

 private:
  static void enter(unsigned high, unsigned low);
  void run();
  void switch_in();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t first_{};
  std::jmp_buf self_{};
  std::jmp_buf resumer_{};
  const void* resumer_stack_ = nullptr;  // these four are for AddressSanitizer only
  std::size_t resumer_stack_bytes_ = 0;
  void* resumer_kept_ = nullptr;
  void* self_kept_ = nullptr;
  std::exception_ptr error_;
  bool started_ = false;
  bool ended_ = false;
  bool abandoned_ = false;
};

}  // namespace flashlab::host
