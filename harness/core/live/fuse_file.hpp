// One file that the kernel sees, with a live device behind it: translates, decides nothing.
//
// libfuse's low-level interface; the mount is the file itself, without a folder around it. Several
// threads take requests; replies leave from whichever thread the device answers on. A loop device
// above it (direct I/O) makes a block device of it: discards arrive as punched holes, flushes as
// fsync; FUA is split by the kernel into a write and a flush.
#pragma once

#include <memory>
#include <string>

#include "live/device.hpp"

namespace flashlab::live {

class FuseFile {
 public:
  // Mounts over `path`, an existing file. `source` is what the mount table shows. Throws
  // OperatingError (target) where the kernel or the permissions do not allow it, or where this
  // build has no libfuse.
  FuseFile(LiveDevice& device, const std::string& path, const std::string& source,
           std::uint32_t threads);
  // Ends the connection, then unmounts: whoever still has the file open gets errors.
  ~FuseFile();
  FuseFile(const FuseFile&) = delete;
  FuseFile& operator=(const FuseFile&) = delete;

  [[nodiscard]] static bool available();

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace flashlab::live
