// Two kinds of failure, never mixed (docs/architecture.md): a bug is a failed CHECK, which stays on
// in release builds and reaches Python as AssertionError; an operating error is an OperatingError,
// which reaches Python as the class of harness/errors.py that its kind names.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace flashlab {

class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

enum class ErrorKind { bad_parameter, target, disk_full, io, corrupt, interrupted };

class OperatingError : public std::runtime_error {
 public:
  OperatingError(ErrorKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] void report_bug(const char* condition, const char* file, int line);

inline void require(bool holds, const std::string& message) {
  if (!holds) throw OperatingError(ErrorKind::bad_parameter, message);
}

}  // namespace flashlab

#define FLASHLAB_CHECK(condition)                             \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::flashlab::report_bug(#condition, __FILE__, __LINE__); \
  } while (false)
