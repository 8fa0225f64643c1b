// The file that a live device is served as; see front/fuse_loop.py.
#include "live/fuse_file.hpp"

#include <nanobind/stl/string.h>

#include <optional>

#include "bind/live.hpp"

using namespace nanobind::literals;

namespace flashlab::bind {

namespace {

// The file for as long as it is mounted: Python says when it ends, not whoever collects objects.
struct Served {
  Served(Live& live, const std::string& path, const std::string& source, std::uint32_t threads)
      : file(std::in_place, live.device, path, source, threads) {}

  std::optional<live::FuseFile> file;
};

}  // namespace

void bind_fuse_file(nb::module_& m) {
  nb::class_<Served>(m, "FuseFile", "A live device as a file that the kernel sees.")
      .def(
          "__init__",
          [](Served* self, Live& device, const std::string& path, const std::string& source,
             std::uint32_t threads) {
            const nb::gil_scoped_release release;
            new (self) Served(device, path, source, threads);
          },
          "device"_a, "path"_a, nb::kw_only(), "source"_a, "threads"_a, nb::keep_alive<1, 2>(),
          "Mounts over `path`, an existing file; `source` is what the mount table shows.")
      .def(
          "close",
          [](Served& served) {
            const nb::gil_scoped_release release;
            served.file.reset();
          },
          "Ends the connection, then unmounts: whoever still has the file open gets errors.")
      .def_static("available", [] { return live::FuseFile::available(); });
}

}  // namespace flashlab::bind
