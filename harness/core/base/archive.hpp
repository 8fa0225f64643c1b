// A model's state as bytes. One function per class names its members for both directions, so that
// saving and restoring cannot disagree:
//
//   void archive(Archive& a) { a.all(counters_, map_); ... }
//
// The bytes are for the build that wrote them: no conversion between versions or machines.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/check.hpp"

namespace flashlab {

class Archive {
 public:
  // Saves into `bytes`, which grows.
  static Archive saving(std::vector<std::byte>& bytes) { return Archive(&bytes, {}); }
  // Restores from what a model with the same parameters has saved. Throws OperatingError where the
  // bytes end too early.
  static Archive restoring(std::span<const std::byte> bytes) { return Archive(nullptr, bytes); }

  [[nodiscard]] bool is_restoring() const { return out_ == nullptr; }

  template <class... T>
  void all(T&... members) {
    (one(members), ...);
  }

  template <class T>
  void one(T& member) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    raw(&member, sizeof(T));
  }
  template <class T>
  void one(std::vector<T>& members) {
    sized(members);
    static_assert(std::is_trivially_copyable_v<T>);
    raw(members.data(), members.size() * sizeof(T));
  }
  template <class T>
  void one(std::deque<T>& members) {
    sized(members);
    for (T& member : members) one(member);
  }

  template <class T>
  void block(T* members, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(members, count * sizeof(T));
  }
  template <class T>
  void one(std::optional<T>& member) {
    bool present = member.has_value();
    one(present);
    if (is_restoring()) member = present ? std::optional<T>(T{}) : std::nullopt;
    if (present) one(*member);
  }

  // After restoring: whether all bytes were used.
  [[nodiscard]] bool at_end() const { return in_.empty(); }

 private:
  Archive(std::vector<std::byte>* out, std::span<const std::byte> in) : out_(out), in_(in) {}

  template <class Container>
  void sized(Container& members) {
    std::size_t size = members.size();
    one(size);
    if (!is_restoring()) return;
    require(size <= in_.size(), "the saved state is damaged: it ends too early");
    members.resize(size);
  }

  void raw(void* at, std::size_t size) {
    if (size == 0) return;
    if (out_ != nullptr) {
      const std::size_t end = out_->size();
      out_->resize(end + size);
      std::memcpy(out_->data() + end, at, size);
      return;
    }
    require(size <= in_.size(), "the saved state is damaged: it ends too early");
    std::memcpy(at, in_.data(), size);
    in_ = in_.subspan(size);
  }

  std::vector<std::byte>* out_;
  std::span<const std::byte> in_;
};

// What `archive`, a function of an Archive, saves.
template <class F>
std::vector<std::byte> saved_by(const F& archive) {
  std::vector<std::byte> bytes;
  Archive saving = Archive::saving(bytes);
  archive(saving);
  return bytes;
}

// Restores all of `saved`. Throws OperatingError where that is of something else; then all is as it
// was.
template <class F>
void restore_all(std::span<const std::byte> saved, const F& archive) {
  const std::vector<std::byte> before = saved_by(archive);
  try {
    Archive restoring = Archive::restoring(saved);
    archive(restoring);
    require(restoring.at_end(), "the saved state is of a device with other parameters");
  } catch (...) {
    Archive back = Archive::restoring(before);
    archive(back);
    throw;
  }
}

}  // namespace flashlab
