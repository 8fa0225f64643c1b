#include "base/check.hpp"

namespace flashlab {

void report_bug(const char* condition, const char* file, int line) {
  throw Bug(std::string("bug: ") + condition + " does not hold at " + file + ":" +
            std::to_string(line));
}

}  // namespace flashlab
