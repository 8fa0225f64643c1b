// Reads pieces of records in order, as many ahead as it has buffers and the window has room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "join/io_window.hpp"
#include "join/record.hpp"

namespace flashlab::join {

struct Piece {
  Bytes offset;
  Bytes size;  // as transferred: whole blocks
  std::int64_t records = 0;
};

class ReadStream final : private IoListener {
 public:
  // Piece i is read into part i % n of `memory`, which is n buffers of `buffer` bytes.
  ReadStream(IoWindow& window, std::vector<Piece> pieces, std::span<std::byte> memory,
             Bytes buffer);

  // The next piece's records, or an empty span after the last. They are valid until the next call,
  // or for good if there are as many buffers as pieces. Throws OperatingError (corrupt) if a record
  // does not carry its own signature.
  [[nodiscard]] std::span<const Record> next();
  // Starts what can be started without waiting.
  void top_up();
  [[nodiscard]] bool all_started() const { return started_ == pieces_.size(); }

 private:
  void io_done(std::uint32_t slot) override { done_[slot] = true; }
  [[nodiscard]] std::span<std::byte> buffer_of(std::size_t piece) const;

  IoWindow& window_;
  std::vector<Piece> pieces_;
  std::span<std::byte> memory_;
  std::size_t buffer_;
  std::size_t buffers_;
  std::vector<char> done_;  // by buffer
  std::size_t started_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace flashlab::join
