// In which order PostgreSQL's hash join fills the blocks of its batches' files. TPC-H's tables lie
// in the order of their keys, so the server's hash function alone decides it, and each repetition
// has the same one.
//
//  - Keys are TPC-H's (revision 3, 4.2.3: the first eight of each 32 are used), from 1 on, of type
//    integer: 1 to 7, 32 to 39, 64 to 71.
//    The inner table has each once; of the outer one a key has 1 to 2 m - 1 tuples, evenly drawn,
//    m of them on average (TPC-H: 1 to 7 lines per order).
//  - Hash and batch: common/hashfn.c, hash_bytes_uint32(); nodeHash.c, ExecHashGetBucketAndBatch().
//  - A file is made for its batch's first tuple (nodeHashjoin.c, ExecHashJoinSaveTuple()), a block
//    written when it is full; what is left is written when the file is rewound to be read
//    (ExecHashJoinNewBatch(); buffile.c, BufFileSeek()).
// Not modelled: tuples of different widths.
#pragma once

#include <cstdint>
#include <vector>

#include "base/prng.hpp"
#include "base/units.hpp"

namespace flashlab::dbms {

// What each one is: dbms/describe.hpp.
struct JoinInput {
  std::int64_t tuples = 0;
  Bytes heap;
  double temp_tuple_bytes = 0;
};

// Batches are counted from 0 on: that one has no file.
struct BatchOrder {
  std::vector<std::uint32_t> made;    // of each file the batch, in the order of their first tuples
  std::vector<std::uint32_t> filled;  // of each full block the batch, in the order of filling
  std::vector<std::int64_t> scanned;  // by block: tuples of the table until then
  std::vector<std::int64_t> blocks;   // by batch, with the rest
  std::vector<bool> has_rest;         // by batch: its last block is not full
};

// `buckets` and `batches` are powers of two; keys: how many the inner table has.
struct HashShape {
  std::int64_t keys = 0;
  std::int64_t buckets = 1;
  std::int64_t batches = 1;
};

[[nodiscard]] std::uint32_t postgres_hash(std::uint32_t key);

[[nodiscard]] BatchOrder order_of(const JoinInput& input, const HashShape& shape, Bytes block,
                                  Prng& random);

}  // namespace flashlab::dbms
