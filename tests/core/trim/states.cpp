// Every state that a tiny drive can reach, by whatever sequence of requests.
//
//   trim_states BLOCKS SLICE_BLOCKS RANGES WRITES BATCH FORCED_SLICES FLAGS [MAX_STATES]
//
// Breadth first: from each state every write and TRIM of consecutive blocks, every read of a slice,
// one step of idle work, all of it, and a power cut; each answer is compared with what a plain map
// allows. Two states that differ only in names (numbers of turns, places in tables) are one, so
// the search ends: what it says then holds for sequences of any length. A command of several ranges
// is one of each after the other: no write comes between.
//
// Prints one JSON object. Exit code 1 at the first difference, with the sequence that leads to it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "flash/trim/delayed_trim.h"

namespace {

constexpr std::uint32_t kBlocks = 16;

struct Block {
  std::uint8_t data;  // 0: zeroes, 1: what was written last
  std::uint8_t may_old;
  std::uint8_t may_zero;
  std::uint8_t sure;  // trimmed and not forgotten since: only zeroes
};

struct Op {
  enum Kind : std::uint8_t { write, trim, read, step, finish, cut } kind;
  std::uint8_t begin;
  std::uint8_t end;
};

struct Difference {
  std::string what;
};

// Without the counts, of which only one belongs to the state.
struct State {
  std::array<char, offsetof(dtrim_state, statistics)> module;
  std::uint64_t pending_blocks;
  std::array<Block, kBlocks> blocks;
  std::vector<std::uint32_t> memory;
};

class Tiny {
 public:
  explicit Tiny(const dtrim_config& config) : config_(config) {
    state_.memory.resize(dtrim_memory_bytes(&config) / 4);
    const dtrim_callbacks callbacks = {this, invalidate, nullptr};
    if (dtrim_init(&d_, &config, &callbacks, state_.memory.data(), bytes()) != 0) {
      throw std::runtime_error("no such drive");
    }
    state_.blocks.fill({1, 1, 0, 0});
  }
  Tiny(const Tiny&) = delete;
  Tiny& operator=(const Tiny&) = delete;

  [[nodiscard]] const State& save() {
    std::memcpy(state_.module.data(), &d_.state, state_.module.size());
    state_.pending_blocks = d_.state.statistics.pending_blocks;
    return state_;
  }
  void load(const State& from) {
    std::memcpy(state_.memory.data(), from.memory.data(), bytes());
    state_.blocks = from.blocks;
    std::memcpy(&d_.state, from.module.data(), from.module.size());
    d_.state.statistics.pending_blocks = from.pending_blocks;
  }

  void apply(const Op& op) {
    const std::uint64_t forgotten = d_.state.statistics.blocks_forgotten;
    switch (op.kind) {
      case Op::write:
        write(op.begin, op.end);
        break;
      case Op::trim:
        trim(op.begin, op.end);
        break;
      case Op::read:
        read(op.begin);
        break;
      case Op::step:
        dtrim_step(&d_, 1);
        break;
      case Op::finish:
        finish();
        break;
      case Op::cut:
        dtrim_reset(&d_);
        unsure();
        break;
    }
    if (d_.state.statistics.blocks_forgotten != forgotten) unsure();
    if (!dtrim_is_sound(&d_)) throw Difference{"tables disagree"};
  }

  // The same for states that differ in names only.
  [[nodiscard]] std::string key() const;
  // Of all that was ever applied here, whatever was loaded between.
  [[nodiscard]] const dtrim_statistics& counted() const { return d_.state.statistics; }

 private:
  [[nodiscard]] std::uint32_t bytes() const {
    return static_cast<std::uint32_t>(state_.memory.size() * 4);
  }
  [[nodiscard]] std::uint32_t size() const { return config_.blocks_per_slice; }

  static void invalidate(void* context, std::uint32_t slice, std::uint32_t slices,
                         std::uint32_t blocks) {
    Tiny& self = *static_cast<Tiny*>(context);
    for (std::uint32_t i = 0; i < slices * self.size(); ++i) {
      const std::uint32_t block = slice * self.size() + i;
      if ((blocks >> (i % self.size()) & 1) != 0) self.state_.blocks.at(block).data = 0;
    }
  }

  void unsure() {
    for (Block& block : state_.blocks) block.sure = 0;
  }

  void write(std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t all = (1U << size()) - 1;
    if (begin % size() != 0) dtrim_read(&d_, begin / size(), all);
    if (end % size() != 0) dtrim_read(&d_, end / size(), all);
    const dtrim_work work = dtrim_write(&d_, begin, end - begin);
    if (work.checked > config_.write_forced_slices) throw Difference{"a write waits too long"};
    for (std::uint32_t i = begin; i < end; ++i) state_.blocks.at(i) = {1, 1, 0, 0};
  }

  void trim(std::uint32_t begin, std::uint32_t end) {
    const dtrim_range range = {begin, end - begin};
    const std::uint32_t slices = (end - 1) / size() - begin / size() + 1;
    const dtrim_work work = dtrim_trim(&d_, &range, 1);
    if (work.checked > std::min(2 * slices, config_.trim_forced_slices)) {
      throw Difference{"a TRIM waits too long"};
    }
    if ((config_.flags & DTRIM_WHOLE_SLICES) != 0) {
      begin = (begin + size() - 1) / size() * size();
      end = end / size() * size();
    }
    for (std::uint32_t i = begin; i < end; ++i) {
      state_.blocks.at(i).may_zero = 1;
      state_.blocks.at(i).sure = 1;
    }
  }

  void read(std::uint32_t slice) {
    const std::uint32_t first = slice * size();
    const std::uint32_t count = std::min(size(), config_.blocks - first);
    const std::uint32_t zeroes = dtrim_read(&d_, slice, (1U << count) - 1);
    for (std::uint32_t i = 0; i < count; ++i) {
      Block& block = state_.blocks.at(first + i);
      const bool is_zero = (zeroes >> i & 1) != 0 || block.data == 0;
      if (is_zero && !block.may_zero) throw Difference{"data written after a TRIM is gone"};
      if (!is_zero && !block.may_old) throw Difference{"a block changes its mind"};
      if (!is_zero && block.sure) throw Difference{"a trimmed block still has its data"};
      block.may_zero = is_zero ? 1 : 0;
      block.may_old = is_zero ? 0 : 1;
    }
  }

  void finish() {
    dtrim_step(&d_, UINT32_MAX);
    if (d_.state.pending != 0 || d_.state.noted != 0) throw Difference{"the tables leak"};
    for (const Block& block : state_.blocks) {
      if (block.sure && block.data != 0) throw Difference{"a TRIM was never applied"};
    }
  }

  dtrim_config config_;
  dtrim d_;
  State state_;
};

std::string Tiny::key() const {
  std::vector<std::uint32_t> turns = {d_.state.turn};
  std::vector<std::array<std::uint32_t, 3>> writes;
  for (std::uint32_t i = 0; i < config_.buckets; ++i) {
    for (std::uint32_t at = d_.buckets[i]; at != UINT32_MAX; at = d_.writes[at].next) {
      // A note protects from turns before its own: it stands with the turn that it was made in.
      writes.push_back({d_.writes[at].slice, d_.writes[at].blocks, d_.writes[at].turn - 1});
      turns.push_back(d_.writes[at].turn - 1);
    }
  }
  for (std::uint16_t id = d_.state.oldest; id != UINT16_MAX; id = d_.ranges[id].newer) {
    turns.push_back(d_.ranges[id].turn);
  }
  std::sort(turns.begin(), turns.end());
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  std::sort(writes.begin(), writes.end());
  const auto rank = [&](std::uint32_t turn) {
    return static_cast<char>(std::lower_bound(turns.begin(), turns.end(), turn) - turns.begin());
  };
  std::string key;
  for (std::uint32_t i = 0; i < config_.blocks; ++i) {
    const Block& b = state_.blocks[i];
    key += static_cast<char>(b.data | b.may_old << 1 | b.may_zero << 2 | b.sure << 3);
  }
  key += rank(d_.state.turn);
  key += static_cast<char>(d_.state.turn_is_old);
  key += static_cast<char>(writes.size());
  for (const auto& w : writes) {
    key += {static_cast<char>(w[0]), static_cast<char>(w[1]), rank(w[2])};
  }
  for (std::uint16_t id = d_.state.oldest; id != UINT16_MAX; id = d_.ranges[id].newer) {
    const dtrim_pending_range& r = d_.ranges[id];
    key += {static_cast<char>(r.begin), static_cast<char>(r.end), rank(r.turn)};
  }
  return key;
}

std::vector<Op> alphabet(const dtrim_config& config) {
  std::vector<Op> ops = {{Op::step, 0, 0}, {Op::finish, 0, 0}, {Op::cut, 0, 0}};
  const std::uint32_t slices =
      (config.blocks + config.blocks_per_slice - 1) / config.blocks_per_slice;
  for (std::uint8_t slice = 0; slice < slices; ++slice) ops.push_back({Op::read, slice, 0});
  for (std::uint8_t begin = 0; begin < config.blocks; ++begin) {
    for (auto end = static_cast<std::uint8_t>(begin + 1); end <= config.blocks; ++end) {
      ops.push_back({Op::write, begin, end});
      ops.push_back({Op::trim, begin, end});
    }
  }
  return ops;
}

struct Step {
  std::uint32_t from;
  Op op;
};

void print_path(const std::vector<Step>& steps, std::uint32_t state, const Op& last) {
  static constexpr const char* kNames[] = {"write", "trim", "read", "step", "finish", "cut"};
  std::vector<Op> path = {last};
  for (; state != 0; state = steps[state].from) path.push_back(steps[state].op);
  for (auto op = path.rbegin(); op != path.rend(); ++op) {
    std::cerr << "  " << kNames[op->kind] << " " << int{op->begin} << " " << int{op->end} << "\n";
  }
}

int search(const dtrim_config& config, std::uint64_t max_states) {
  const std::vector<Op> ops = alphabet(config);
  Tiny tiny(config);
  std::unordered_set<std::string> seen = {tiny.key()};
  std::vector<Step> steps = {{0, {}}};
  std::vector<State> level = {tiny.save()};
  std::uint32_t first = 0;  // the number of the level's first state
  std::uint64_t transitions = 0;
  int depth = 0;
  for (; !level.empty() && seen.size() < max_states; ++depth) {
    std::vector<State> next;
    const auto next_first = static_cast<std::uint32_t>(steps.size());
    for (std::uint32_t i = 0; i < level.size() && seen.size() < max_states; ++i) {
      for (const Op& op : ops) {
        tiny.load(level[i]);
        ++transitions;
        try {
          tiny.apply(op);
        } catch (const Difference& difference) {
          std::cerr << difference.what << ", after\n";
          print_path(steps, first + i, op);
          return 1;
        }
        if (!seen.insert(tiny.key()).second) continue;
        steps.push_back({first + i, op});
        next.push_back(tiny.save());
      }
    }
    level = std::move(next);
    first = next_first;
  }
  const bool complete = level.empty() && seen.size() < max_states;
  std::cout << "{\"blocks\": " << config.blocks << ", \"slice_blocks\": " << config.blocks_per_slice
            << ", \"ranges\": " << config.ranges << ", \"writes\": " << config.writes
            << ", \"batch_slices\": " << config.batch_slices << ", \"flags\": " << config.flags
            << ", \"forced_slices\": " << config.write_forced_slices
            << ", \"requests\": " << ops.size() << ", \"states\": " << seen.size()
            << ", \"transitions\": " << transitions << ", \"depth\": " << depth
            << ", \"list_full_splits\": " << tiny.counted().list_full_splits
            << ", \"list_full_forced\": " << tiny.counted().list_full_forced
            << ", \"ranges_full_oldest\": " << tiny.counted().ranges_full_oldest
            << ", \"ranges_full_forced\": " << tiny.counted().ranges_full_forced
            << ", \"blocks_forgotten\": " << tiny.counted().blocks_forgotten
            << ", \"complete\": " << (complete ? "true" : "false") << "}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    std::cerr << "usage: trim_states BLOCKS SLICE_BLOCKS RANGES WRITES BATCH FORCED_SLICES FLAGS"
                 " [MAX_STATES]\n";
    return 2;
  }
  std::array<std::uint32_t, 7> n{};
  for (std::size_t i = 0; i < n.size(); ++i) {
    n[i] = static_cast<std::uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
  }
  const dtrim_config config = {n[0], n[1], n[2], n[3], 2, n[4], n[5], n[5], n[6]};
  const std::uint64_t max_states = argc > 8 ? std::strtoull(argv[8], nullptr, 10) : UINT64_MAX;
  if (config.blocks > kBlocks || config.blocks_per_slice > 8) {
    std::cerr << "at most " << kBlocks << " blocks, and 8 in a slice\n";
    return 2;
  }
  return search(config, max_states);
}
