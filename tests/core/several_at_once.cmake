# The core for the C++ tests, and these, are compiled more often than they run: several sources at a
# time. A test's source has its names in a namespace that is called like its file, not in one without
# a name. Sources of the core that use the same name for something of their own are compiled alone:
# the compiler says "redefinition" of a new one, and it goes into the list.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
set_source_files_properties(kernel/page_cache.cpp dbms/tpcc/transactions.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
