#include "live/priority.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

namespace flashlab::live {

void run_promptly() {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  ::prctl(PR_SET_IO_FLUSHER, 1UL, 0UL, 0UL, 0UL);
  sched_param first{};
  first.sched_priority = 1;
  ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &first);
}

}  // namespace flashlab::live
