// The modelled allocator of ext4, told what a real one was asked for (test_ext4_beside_kernel.py).
// Reads orders from its input; for `show FILE` prints the runs that the file lies in, in blocks.
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/ext4/allocator.hpp"
#include "kernel/ext4/groups.hpp"

namespace {

using namespace flashlab::kernel::ext4;

constexpr std::int64_t kPerGroup = 32'768;
constexpr std::size_t kExtentsInInode = 4;

struct File {
  std::uint64_t number = 0;
  std::int64_t blocks = 0;
  bool open = true;
  std::vector<Run> runs;
  std::optional<Preallocation> kept;
  std::optional<Run> leaf;
};

class Replay {
 public:
  // Nothing is free.
  Replay(std::int64_t blocks, const AllocatorRules& rules)
      : groups_(blocks, kPerGroup), allocator_(groups_, rules) {
    for (GroupNumber group = 0; group < groups_.count(); ++group) {
      const std::vector<Run> runs = groups_.runs(group);
      for (const Run& run : runs) groups_.take(run);
    }
  }

  void free(Run run) {
    while (run.blocks > 0) {
      const BlockNumber border = (groups_.group_of(run.begin) + 1) * kPerGroup;
      const std::int64_t blocks = std::min(run.blocks, border - run.begin);
      groups_.give_back({run.begin, blocks});
      run = {run.begin + blocks, run.blocks - blocks};
    }
  }
  void create(int name, std::uint64_t number) {
    files_[name] = File{};
    files_[name].number = number;
  }
  void open(int name, bool open) { files_[name].open = open; }
  void fallocate(int name, std::int64_t blocks) {
    File& file = files_[name];
    for (const std::int64_t end = file.blocks + blocks; file.blocks < end;) {
      append(file, allocator_.allocate_plain(file.number, end - file.blocks, tail(file)));
    }
  }
  void write(int name, std::int64_t blocks) {
    File& file = files_[name];
    const std::int64_t end = file.blocks + blocks;
    while (file.blocks < end) {
      const std::int64_t left = end - file.blocks;
      append(file, file.open ? allocator_.allocate(file.number, file.blocks, left, end, tail(file),
                                                   file.kept)
                             : allocator_.allocate_closed(left, end, tail(file), file.kept));
    }
    if (!file.open) drop_kept(file);
  }
  void remove(int name) {
    File& file = files_[name];
    drop_kept(file);
    freed_.insert(freed_.end(), file.runs.begin(), file.runs.end());
    if (file.leaf) freed_.push_back(*file.leaf);
    files_.erase(name);
  }
  void commit() {
    for (const Run& run : freed_) free(run);
    freed_.clear();
  }
  void show(int name) const {
    for (const Run& run : files_.at(name).runs) std::cout << run.begin << '+' << run.blocks << ' ';
    std::cout << '\n';
  }

 private:
  static std::optional<Tail> tail(const File& file) {
    if (file.runs.empty()) return std::nullopt;
    return Tail{file.blocks, file.runs.back().end()};
  }
  void append(File& file, const std::optional<Run>& run) {
    const bool touches = !file.runs.empty() && file.runs.back().end() == run.value().begin;
    if (touches) {
      file.runs.back().blocks += run->blocks;
    } else {
      file.runs.push_back(*run);
    }
    file.blocks += run->blocks;
    if (file.runs.size() > kExtentsInInode && !file.leaf)
      file.leaf = allocator_.allocate_metadata(1);
  }
  void drop_kept(File& file) {
    if (file.kept) groups_.give_back(file.kept->run);
    file.kept.reset();
  }

  Groups groups_;
  Allocator allocator_;
  std::map<int, File> files_;
  std::vector<Run> freed_;
};

}  // namespace

// BLOCKS RECENT STREAM_GOALS GROUP_OF_SMALL_FILES
int main(int, char** arguments) {
  AllocatorRules rules;
  rules.recent = std::stoi(arguments[2]) != 0;
  rules.stream_goals = static_cast<std::uint32_t>(std::stoul(arguments[3]));
  rules.small_files = std::stoll(arguments[4]);
  Replay replay(std::stoll(arguments[1]), rules);
  std::string order;
  std::int64_t first = 0;
  std::int64_t second = 0;
  while (std::cin >> order >> first >> second) {
    const int name = static_cast<int>(first);
    if (order == "free") replay.free({first, second});
    if (order == "create") replay.create(name, static_cast<std::uint64_t>(second));
    if (order == "open") replay.open(name, second != 0);
    if (order == "fallocate") replay.fallocate(name, second);
    if (order == "write") replay.write(name, second);
    if (order == "remove") replay.remove(name);
    if (order == "commit") replay.commit();
    if (order == "show") replay.show(name);
  }
}
