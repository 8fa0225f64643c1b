// Parameters and counters of databases: what each one is, and its name; see base/describe.hpp.
#pragma once

#include "base/describe.hpp"
#include "base/policy_table.hpp"
#include "dbms/hash_join.hpp"
#include "dbms/innodb/engine.hpp"
#include "dbms/innodb/storage.hpp"
#include "dbms/sort_merge_join.hpp"
#include "dbms/tape.hpp"
#include "dbms/tpcc/tables.hpp"
#include "dbms/tpcc/transactions.hpp"
#include "dbms/tpcc_run.hpp"
#include "kernel/describe.hpp"

namespace flashlab::dbms {

// But for `block`.
template <class V>
void describe(V& v, TapeParameters& p) {
  v.required("payload_bytes", p.payload, "of a block");
  v.required("reserve_block", p.reserve,
             "a tape takes its next block when it writes one (15), not when it needs it");
  v.optional("piece_blocks", p.piece,
             "free space is taken in pieces of at least so many blocks, as long as there are any; "
             "1: the lowest free block, however alone it lies");
}

template <class V>
void describe(V& v, SortedTable& p) {
  v.required("tuples", p.tuples, "of the table");
  v.required("heap_bytes", p.heap, "as stored, and read once");
  v.required("tuple_bytes", p.tuple, "on tape, one of them");
  v.required("first_run_tuples", p.first_run_tuples, "of the first initial run");
  v.required("second_run_tuples", p.second_run_tuples, "of the second");
  v.required("run_tuples", p.run_tuples, "of all others");
  v.required("merge_memory_bytes", p.merge_memory,
             "of tape that the memory for reading holds, all tapes together");
  v.optional("write_memory_bytes", p.write_memory,
             "taken off that for each tape that is written in the same pass");
  v.optional("share_unit_bytes", p.share_unit,
             "a tape's share of it is a multiple of them: what a block holds, since PostgreSQL 10");
}

template <class V>
void describe(V& v, SortCpu& p) {
  v.required("scan_cpu_ns", p.scan,
             "per tuple: reading it from its table and forming the one to be sorted");
  v.required("compare_cpu_ns", p.compare, "one comparison");
  v.required("copy_cpu_ns", p.copy, "per tuple: to a tape or from one");
  v.required("join_cpu_ns", p.join, "per tuple, after the sorts: the join, its output, the client");
}

template <class V>
void describe(V& v, SortMergeJoinSpec& p) {
  v.required("tables", p.tables, "in the order in which they are sorted");
  v.required("merge", p.merge, "the plan: polyphase, balanced");
  v.required("merge_order", p.merge_order, "runs that are merged at once");
  v.required("burst", p.burst, "runs are formed in memory and written whole, not tuple by tuple");
  std::string refill(name_of(p.refill));
  v.required("refill", refill,
             "when one tape's memory is used up in a merge before the last: all are read, or one");
  p.refill = find_policy(kRefills, "refill", refill).refill;
  describe(v, p.tapes);
  describe(v, p.cpu);
  v.required("table_rate_bytes_per_s", p.table_rate,
             "of the disk that the tables lie on, all clients together");
  v.optional("ahead", p.ahead, "the next share of the tape that is refilled is read ahead");
  v.optional("trace_rows", p.trace_rows,
             "of the device's requests that are recorded, at most: every n-th; an even number");
  v.optional("seed", p.seed, "of all that is drawn");
}

template <class V>
void count(V& v, const JoinReads& c) {
  v("join_read_requests", c.requests);
  v("join_read_jumps", c.jumps);
  v("join_read_bytes", c.bytes);
}

template <class V>
void count(V& v, const ClientResult& c) {
  v("sorted_ns", c.sorted);
  v("ended_ns", c.ended);
  v("temp_blocks_read", c.temp_blocks_read);
  v("temp_blocks_written", c.temp_blocks_written);
  v("temp_file_blocks", c.temp_file_blocks);
  v("runs", c.runs);
  v("merges", c.merges);
  v("merged_bytes", c.merged);
  v("busy_sorted_ns", c.busy_sorted);
  v("busy_ended_ns", c.busy_ended);
}

template <class V>
void describe(V& v, JoinInput& p) {
  v.required("tuples", p.tuples, "of the table");
  v.required("heap_bytes", p.heap, "as stored, and read once");
  v.required("temp_tuple_bytes", p.temp_tuple_bytes, "of one in a batch's file");
}

template <class V>
void describe(V& v, HashJoinCpu& p) {
  v.required("scan_cpu_ns", p.scan,
             "per tuple: reading it from its table, hashing, writing it to its batch");
  v.required("build_cpu_ns", p.build, "per tuple: from the inner file into the hash table");
  v.required("probe_cpu_ns", p.probe,
             "per tuple: from the outer file: look up, join, give the result away");
  v.optional("open_cpu_ns", p.open, "per file: closing it and opening another one");
}

template <class V>
void describe(V& v, HashJoinSpec& p) {
  v.required("inner", p.inner, "the table that the hash table is built of");
  v.required("outer", p.outer, "the other one");
  v.required("batches", p.batches, "that the join is cut into; a power of two");
  v.required("buckets", p.buckets, "of the hash table; a power of two");
  v.optional("repetitions", p.repetitions, "one after the other on the same drive");
  describe(v, p.cpu);
  v.optional("open_files", p.open_files, "that a server has at most (max_files_per_process)");
  v.required("table_rate_bytes_per_s", p.table_rate, "of the disk that the tables lie on");
  v.optional("settle", p.settle, "a repetition ends with all it has freed committed and discarded");
  v.optional("trim_after", p.trim_after, "fstrim after each repetition");
  v.optional("give_back", p.give_back,
             "files are cut to their ends when their side is partitioned, not when they go");
  v.optional("traced", p.traced, "the repetition that is recorded; -1: none");
  v.optional("trace_rows", p.trace_rows, "of its requests, at most: every n-th; an even number");
  v.optional("seed", p.seed, "of all that is drawn");
}

template <class V>
void count(V& v, const JoinRun& run) {
  v("begun_ns", run.begun);
  v("partitioned_ns", run.partitioned);
  v("joined_ns", run.joined);
  v("settled_ns", run.settled);
}

namespace tpcc {

template <class V>
void describe(V& v, RowsPerPage& p) {
  v.required("warehouse", p.warehouse, "by primary key, as below");
  v.required("district", p.district, "");
  v.required("customer", p.customer, "");
  v.required("customer_by_name", p.customer_by_name, "by its secondary index");
  v.required("history", p.history, "");
  v.required("new_order", p.new_order, "");
  v.required("orders", p.orders, "");
  v.required("orders_by_customer", p.orders_by_customer, "by its secondary index");
  v.required("order_line", p.order_line, "");
  v.required("item", p.item, "");
  v.required("stock", p.stock, "");
  v.required("order_line_new", p.order_line_new, "of a page that is filled after the load");
  v.required("order_line_room", p.order_line_room,
             "for whose delivery date a page has room; then it is cut in two");
}

}  // namespace tpcc

namespace tpcc {

template <class V>
void describe(V& v, RedoBytes& p) {
  v.required("redo_update_bytes", p.update, "logged for a row that is changed, undo included");
  v.required("redo_line_bytes", p.insert_line, "... for a new row of order_line");
  v.required("redo_insert_bytes", p.insert, "... for another new row");
  v.required("redo_commit_bytes", p.commit, "of a transaction that has changed something");
}

template <class V>
void describe(V& v, WorkloadParameters& p) {
  v.required("warehouses", p.warehouses, "of the database");
  v.required("connections", p.users, "each with its next transaction when the last has ended");
  v.group("rows_per_page", p.rows, "after the load, by table");
  describe(v, p.redo);
  v.required("undo_pages", p.undo_pages, "of all rollback segments");
  v.required("undo_bytes_per_update", p.undo_bytes_per_update, "of a changed row's undo record");
  v.required("undo_bytes_per_insert", p.undo_bytes_per_insert, "... of a new one's");
  v.required("page_bytes", p.page_bytes, "of the database");
  v.required("most_pages", p.most_pages, "what the database may grow to");
  v.optional("extent_pages", p.extent_pages,
             "by which tables grow while they are loaded; 0: each lies in one piece");
  v.required("seed", p.seed, "of all that is drawn");
}

}  // namespace tpcc

namespace innodb {

template <class V>
void describe(V& v, EngineParameters& p) {
  v.required("buffer_pool_bytes", p.buffer_pool, "memory for pages");
  v.required("flush_batch_pages", p.batch_pages, "that the doublewrite buffer takes at once");
  v.required("lru_scan_depth", p.lru_scan_depth, "pages of the LRU list's end that are kept clean");
  v.required("most_dirty_ratio", p.most_dirty_ratio, "of the pool");
  v.required("flush_age_ratio", p.flush_age_ratio,
             "of the redo log: from there on the cleaner flushes");
  v.optional("old_blocks_ns", p.old_blocks_time,
             "from a page's first use on: no use before makes it young (innodb_old_blocks_time)");
  v.optional("file_pages_age", p.file_pages_age,
             "using a page that says what a file's pages hold keeps it not in the pool: MariaDB");
}

template <class V>
void count(V& v, const EngineCounters& c) {
  v("touches", c.touches);
  v("misses", c.misses);
  v("lru_flushed", c.lru_flushed);
  v("list_flushed", c.list_flushed);
  v("flush_batches", c.batches);
  v("redo_bytes", c.redo_bytes);
  v("read_wait_ns", c.read_wait);
  v("frame_wait_ns", c.frame_wait);
  v("write_wait_ns", c.write_wait);
  v("age_wait_ns", c.age_wait);
  v("commit_wait_ns", c.commit_wait);
}

}  // namespace innodb

namespace innodb {

// But for `page`.
template <class V>
void describe(V& v, StorageParameters& p) {
  v.required("data_journal", p.journaled, "pages become durable through ext4's data journal");
  v.required("doublewrite", p.doublewrite, "... or through the doublewrite buffer");
  v.required("doublewrite_elsewhere", p.doublewrite_elsewhere, "on a drive of its own");
  v.required("redo_elsewhere", p.redo_elsewhere, "on that drive");
  v.required("sync_commits_inode", p.sync_commits_inode,
             "fsync, which commits the times that a write has changed; else fdatasync");
  v.optional("tick_ns", p.tick, "of the kernel's clock, which says what a file's times are");
  v.required("redo_bytes", p.redo, "size of the log, written round and round");
  v.optional("redo_block_bytes", p.redo_block,
             "of which a write of the log is a multiple: without data_journal, if past the page "
             "cache less than 4 KiB");
  v.required("doublewrite_bytes", p.doublewrite_area, "written round and round");
  v.required("page_cache_bytes", p.page_cache,
             "what the kernel keeps of the database with data_journal");
  v.required("page_copy_cpu_ns", p.copy_cpu, "a page from or to the page cache");
  v.required("other_drive_rate_bytes_per_s", p.other_drive_rate, "of what lies elsewhere");
  v.required("other_drive_latency_ns", p.other_drive_latency, "the same");
  describe(v, p.journal);
}

template <class V>
void count(V& v, const StorageCounters& c) {
  const auto bytes = [](std::uint64_t blocks) {
    return kernel::kFsBlock * static_cast<std::int64_t>(blocks);
  };
  v("page_reads", c.page_reads);
  v("cached_reads", c.cached_reads);
  v("pages_flushed", c.pages_flushed);
  v("pages_home", c.pages_home);
  v("doublewrite_written_bytes", bytes(c.doublewrite_blocks));
  v("redo_written_bytes", to_bytes(Sectors{static_cast<std::int64_t>(c.redo_sectors)}));
  v("redo_syncs", c.redo_syncs);
}

}  // namespace innodb

template <class V>
void describe(V& v, TpccSpec& p) {
  describe(v, p.workload);
  p.connections = p.workload.users;
  p.seed = p.workload.seed;
  describe(v, p.engine);
  describe(v, p.storage);
  p.storage.page = Bytes{p.workload.page_bytes};
  v.required("transaction_cpu_ns", p.cpu.transaction, "parsing, locking, commit");
  v.required("touch_cpu_ns", p.cpu.touch, "finding a row and working on it");
  v.required("warm_up_ns", p.warm_up, "before anything is counted");
  v.required("measured_ns", p.measured, "that is counted");
  v.required("sample_ns", p.sample, "how often to look");
  v.required("aged_bytes", p.aged, "the region that was overwritten at random before");
  v.required("aged_block_bytes", p.aged_block, "... in writes of this size");
  v.optional("aged_begin_bytes", p.aged_begin,
             "where it begins; 0: below journal, redo log and the first tables");
  v.optional("trace_rows", p.trace_rows,
             "of the requests that are counted, recorded at most: every n-th; an even number");
}

template <class V>
void count(V& v, const TpccSample& s) {
  v("time_ns", s.when);
  v("new_orders", s.new_orders);
  v("transactions", s.transactions);
  v("device_requests", s.device_requests);
  count(v, s.journal);
  count(v, s.storage);
  count(v, s.engine);
}

}  // namespace flashlab::dbms
