// A flash drive: command processor, dies behind channels, a write buffer, a host link.
//
// Each is a resource with a time at which it becomes free; a request's completion is known when it
// is submitted, since nothing overtakes on any of them. Pages go to the dies in turn, wherever
// their address (log-structured placement); a read goes to the die that holds the page.
// No garbage collection yet: this is the drive with enough free blocks.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/device.hpp"

namespace flashlab::flash {

struct SsdParameters {
  Bytes capacity;
  Bytes page;
  std::int64_t channels = 0;
  std::int64_t dies_per_channel = 0;
  Nanos read_page;     // tR: cells to page register
  Nanos program_page;  // tPROG
  BytesPerSecond channel_rate;
  BytesPerSecond link_rate;
  Nanos command_time;   // firmware time of every command; commands are handled one after another
  Nanos write_latency;  // from the last byte over the link to the acknowledgement of a write
  Bytes write_buffer;
  std::uint32_t queue_depth = 1;
};

struct SsdCounters {
  DeviceCounters device;
  std::uint64_t page_reads = 0;
  std::uint64_t page_programs = 0;
  std::uint64_t buffer_hits = 0;
};

class Ssd final : public DeviceModel {
 public:
  // Throws OperatingError for parameters that no drive can have.
  Ssd(const SsdParameters& parameters, Host& host);

  void submit(Tag tag, const Request& request, Nanos now) override;
  void wake(Nanos /*now*/) override {}
  [[nodiscard]] Bytes capacity() const override { return parameters_.capacity; }
  [[nodiscard]] bool rotational() const override { return false; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return parameters_.queue_depth; }
  [[nodiscard]] const SsdCounters& counters() const { return counters_; }

 private:
  using Die = std::uint16_t;
  struct Buffered {
    Nanos programmed;
    Bytes bytes;
  };

  Nanos read(const Request& request, Nanos begin);
  Nanos write(const Request& request, Nanos begin);
  Nanos flush(Nanos begin) const;
  Nanos read_page(std::int64_t page, Bytes bytes, Nanos begin);
  Nanos program_page(std::int64_t page, Nanos begin);
  Nanos wait_for_buffer(Bytes bytes, Nanos begin);
  Nanos over_link(Bytes bytes, Nanos ready);

  SsdParameters parameters_;
  Host& host_;
  SsdCounters counters_;
  std::vector<Die> die_of_page_;  // logical page -> die
  std::vector<Nanos> die_free_;
  std::vector<Nanos> channel_free_;
  std::deque<Buffered> buffered_;  // in order of programming's end
  Bytes buffered_bytes_;
  Nanos processor_free_;
  Nanos link_free_;
  std::int64_t next_die_ = 0;
};

}  // namespace flashlab::flash
