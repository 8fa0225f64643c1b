#include "join/read_stream.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace flashlab::join {

namespace {

void verify(std::span<const Record> records, Bytes offset) {
  std::uint64_t wrong = 0;
  for (const Record& r : records) wrong |= r.content.signature ^ signature_of(r.content);
  if (wrong == 0) return;
  throw OperatingError(ErrorKind::corrupt, "a record read from offset " +
                                               std::to_string(offset.count()) +
                                               " is not what was written there");
}

}  // namespace

ReadStream::ReadStream(IoWindow& window, std::vector<Piece> pieces, std::span<std::byte> memory,
                       Bytes buffer)
    : window_(window),
      pieces_(std::move(pieces)),
      memory_(memory),
      buffer_(static_cast<std::size_t>(buffer.count())),
      buffers_(memory.size() / buffer_) {
  // All pieces side by side may fit although the last buffer would not be a whole one.
  if (!pieces_.empty() &&
      (pieces_.size() - 1) * buffer_ + static_cast<std::size_t>(pieces_.back().size.count()) <=
          memory.size()) {
    buffers_ = std::max(buffers_, pieces_.size());
  }
  FLASHLAB_CHECK(buffers_ > 0);
  done_.resize(buffers_, 0);
}

std::span<std::byte> ReadStream::buffer_of(std::size_t piece) const {
  return memory_.subspan(piece % buffers_ * buffer_,
                         static_cast<std::size_t>(pieces_[piece].size.count()));
}

void ReadStream::top_up() {
  // The piece handed out last, taken_ - 1, is still in use; those before it are not.
  const std::size_t in_use = taken_ == 0 ? 0 : taken_ - 1;
  while (started_ < pieces_.size() && started_ < in_use + buffers_ && !window_.full()) {
    const std::size_t piece = started_++;
    done_[piece % buffers_] = false;
    window_.start(Op::read, pieces_[piece].offset, buffer_of(piece), *this,
                  static_cast<std::uint32_t>(piece % buffers_));
  }
}

std::span<const Record> ReadStream::next() {
  if (taken_ == pieces_.size()) return {};
  const std::size_t piece = taken_++;
  top_up();
  while (started_ <= piece || !done_[piece % buffers_]) {
    window_.wait_one();
    top_up();
  }
  const auto* first = reinterpret_cast<const Record*>(buffer_of(piece).data());
  const std::span<const Record> records{first, static_cast<std::size_t>(pieces_[piece].records)};
  verify(records, pieces_[piece].offset);
  return records;
}

}  // namespace flashlab::join
