// Storage in virtual time: a device model under a modelled host (host/machine.hpp), and the
// contents of what was written.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/device.hpp"
#include "host/machine.hpp"
#include "io/content_store.hpp"
#include "io/storage.hpp"

namespace flashlab::io {

class VirtualStorage final : public Storage {
 public:
  using MakeDevice = host::Machine::MakeDevice;

  VirtualStorage(const MakeDevice& make_device, const host::HostParameters& host, Bytes cell,
                 Bytes kept, std::shared_ptr<ChunkPool> pool, bool has_contents = true);
  ~VirtualStorage() override;

  [[nodiscard]] Bytes capacity() const override { return machine_.device().capacity(); }
  [[nodiscard]] Bytes block() const override { return Bytes{512}; }
  [[nodiscard]] bool has_contents() const override { return has_contents_; }
  void run(std::uint32_t users, std::uint32_t depth, const Body& body,
           const Cancel& cancel) override;

  // Puts prepared cells on the device, as if they had been written long ago.
  void mount(Bytes offset, std::span<const std::byte> cells);
  [[nodiscard]] ContentStore& content() { return content_; }
  [[nodiscard]] const DeviceModel& device() const { return machine_.device(); }
  [[nodiscard]] DeviceModel& device() { return machine_.device(); }
  [[nodiscard]] const host::BlockLayer& block_layer() const { return machine_.block_layer(); }
  [[nodiscard]] Nanos now() const { return machine_.now(); }

 private:
  class VirtualChannel;

  host::Machine machine_;
  ContentStore content_;
  bool has_contents_;
};

}  // namespace flashlab::io
