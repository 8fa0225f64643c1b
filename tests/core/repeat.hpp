// How often the random tests repeat: core_tests --repeats=N (default 1).
#pragma once

namespace flashlab {

int repeats();

}  // namespace flashlab
