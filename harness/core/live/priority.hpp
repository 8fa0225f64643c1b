// A thread that others wait for, down to the microsecond.
#pragma once

namespace flashlab::live {

// Wakes up without timer slack, before ordinary threads (if the process may), and never waits for
// the write-back of memory that it must itself serve. What is not permitted is left out: the device
// then is later, and counts how late.
void run_promptly();

}  // namespace flashlab::live
