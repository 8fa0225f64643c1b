// The five transactions of TPC-C as the pages that they touch (TPC-C 5.11, clauses 2.4 to 2.8), in
// the standard mix, without keying and think times, each for a warehouse drawn at random.
//
// What an order contains follows from its number, so that whoever comes to it later (delivery,
// order-status, stock-level) finds the same items and customer without their being kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/prng.hpp"
#include "dbms/tpcc/tables.hpp"

namespace flashlab::dbms::tpcc {

enum class Kind : std::uint8_t { new_order, payment, order_status, delivery, stock_level };
inline constexpr std::size_t kKinds = 5;

// create: the page did not exist. tree, file: a change for the sake of such a page, of one beside
// or above it, or of one that says which of the file's pages are taken.
enum class Access : std::uint8_t { read, write, create, tree, file };

struct Touch {
  PageId page = 0;
  Access access = Access::read;
  std::uint16_t redo_bytes = 0;
};

// What the server logs for a row's change, its undo record included.
struct RedoBytes {
  std::uint16_t update = 0;
  std::uint16_t insert_line = 0;
  std::uint16_t insert = 0;
  std::uint16_t commit = 0;
};

struct WorkloadParameters {
  std::uint32_t warehouses = 1;
  std::uint32_t users = 1;
  RowsPerPage rows;
  RedoBytes redo;
  std::uint32_t undo_pages = 1;
  std::uint32_t undo_bytes_per_update = 100;
  std::uint32_t undo_bytes_per_insert = 25;
  std::uint32_t page_bytes = 16384;
  std::uint32_t most_pages = 0;
  std::uint32_t extent_pages = 0;
  std::uint64_t seed = 0;
};

struct Transaction {
  Kind kind = Kind::new_order;
  std::vector<Touch> touches;
  std::uint32_t updated_rows = 0;  // or deleted; those of secondary indexes have no undo records
  std::uint32_t inserted_rows = 0;
};

class Workload {
 public:
  explicit Workload(const WorkloadParameters& parameters);

  // The next transaction of connection `user`; `out` is filled anew.
  void next(std::uint32_t user, Transaction& out);

  [[nodiscard]] const Tables& tables() const { return tables_; }

 private:
  struct District {
    std::uint32_t next_order = kCustomers;
    std::uint32_t next_delivery = kDelivered;
  };
  struct Order {
    std::uint32_t lines;
    std::uint32_t customer;
    std::uint64_t seed;
  };

  void new_order(Transaction& out);
  void payment(Transaction& out);
  void order_status(Transaction& out);
  void delivery(Transaction& out);
  void stock_level(Transaction& out);

  [[nodiscard]] Order order_of(std::uint32_t district, std::uint32_t order) const;
  [[nodiscard]] std::uint32_t item_of(const Order& order, std::uint32_t order_number,
                                      std::uint32_t line) const;
  std::uint32_t find_customer(Transaction& out, std::uint32_t district);
  std::uint32_t any_warehouse() { return below(parameters_.warehouses); }
  std::uint32_t other_warehouse(std::uint32_t home);
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  void touch_lines(Transaction& out, std::uint32_t district, std::uint32_t order, Access access,
                   std::uint16_t redo_bytes);
  void undo(Transaction& out, std::uint32_t user);
  static void add(Transaction& out, PageId page, Access access, std::uint16_t redo_bytes) {
    out.touches.push_back({page, access, redo_bytes});
  }
  void insert(Transaction& out, const Place& place, std::uint16_t redo_bytes);
  void make(Transaction& out, const NewPage& made, std::uint16_t redo_bytes);

  WorkloadParameters parameters_;
  Tables tables_;
  Prng random_;
  std::uint32_t customer_constant_;
  std::uint32_t item_constant_;
  std::uint32_t name_constant_;
  std::vector<District> districts_;
  std::vector<std::uint64_t> undo_bytes_;  // by user, since the begin
};

}  // namespace flashlab::dbms::tpcc
