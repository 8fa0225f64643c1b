// Where TPC-C's rows lie, in pages of the database: clustered by primary key, filled in its order.
//
// Tables are loaded side by side: each takes an extent at a time, in proportion to its size, so
// that extents of all of them alternate (`extent_pages`; 0: each table lies in one piece). Orders,
// their lines and new orders grow at the end of each district's range, history at the end of the
// table; a full page is followed by a new one at the end of the database. Row counts are the
// standard's (TPC-C 5.11, clause 1.2).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace flashlab::dbms::tpcc {

using PageId = std::uint32_t;

enum class Table : std::uint8_t {
  warehouse,
  district,
  customer,
  history,
  new_order,
  orders,
  order_line,
  item,
  stock,
  undo,
};
inline constexpr std::size_t kTables = 10;

inline constexpr std::uint32_t kDistricts = 10;
inline constexpr std::uint32_t kCustomers = 3000;  // of a district; as many orders are loaded
inline constexpr std::uint32_t kItems = 100'000;
inline constexpr std::uint32_t kDelivered = 2100;   // orders of a district, when it is loaded
inline constexpr std::uint32_t kLinesOfOrder = 10;  // on average

// Rows that a page holds after the load; two secondary indexes belong to their tables.
struct RowsPerPage {
  std::uint32_t warehouse = 1;
  std::uint32_t district = 1;
  std::uint32_t customer = 1;
  std::uint32_t customer_by_name = 1;
  std::uint32_t history = 1;
  std::uint32_t new_order = 1;
  std::uint32_t orders = 1;
  std::uint32_t orders_by_customer = 1;
  std::uint32_t order_line = 1;
  std::uint32_t item = 1;
  std::uint32_t stock = 1;
};

// A page of a table, and whether it did not exist before.
struct Place {
  PageId page = 0;
  bool is_new = false;
};

class Tables {
 public:
  // `undo_pages`: of all rollback segments. `most_pages`: what the database may grow to.
  // `extent_pages` counts as the power of two below it. Throws OperatingError for rows that fill no
  // page, or a database that is larger from the start.
  Tables(std::uint32_t warehouses, const RowsPerPage& rows, std::uint32_t undo_pages,
         std::uint32_t most_pages, std::uint32_t extent_pages);

  [[nodiscard]] std::uint32_t warehouses() const { return warehouses_; }
  [[nodiscard]] std::uint32_t districts() const { return warehouses_ * kDistricts; }
  [[nodiscard]] PageId loaded_pages() const { return loaded_; }
  [[nodiscard]] PageId pages() const { return next_; }  // by now
  [[nodiscard]] PageId most_pages() const { return most_; }
  [[nodiscard]] Table table_of(PageId page) const;

  // Warehouses, districts, customers and items count from 0; orders of a district from 0, too.
  [[nodiscard]] PageId warehouse(std::uint32_t w) const;
  [[nodiscard]] PageId district(std::uint32_t d) const;
  [[nodiscard]] PageId customer(std::uint32_t d, std::uint32_t c) const;
  // Of the names' order: `name` of 1000, three customers each.
  [[nodiscard]] PageId customer_by_name(std::uint32_t d, std::uint32_t name) const;
  [[nodiscard]] PageId orders_by_customer(std::uint32_t d, std::uint32_t c) const;
  [[nodiscard]] PageId item(std::uint32_t i) const;
  [[nodiscard]] PageId stock(std::uint32_t w, std::uint32_t i) const;
  [[nodiscard]] PageId undo(std::uint32_t at) const {
    return placed(undo_.first + at % undo_.pages);
  }
  Place next_history();
  Place order(std::uint32_t d, std::uint32_t o) { return orders_.place(*this, d, o); }
  Place new_order(std::uint32_t d, std::uint32_t o) const;
  // The page of an order's `line`-th line of ten.
  Place order_line(std::uint32_t d, std::uint32_t o, std::uint32_t line) {
    return lines_.place(*this, d, o * kLinesOfOrder + line);
  }

 private:
  struct Range {
    PageId first = 0;
    std::uint32_t pages = 0;
    Table table = Table::item;
  };
  // Rows of each district, in order of their number; new ones at its end.
  struct Growing {
    Range loaded;
    std::uint32_t rows_per_page = 1;
    std::uint32_t pages_of_district = 0;
    std::vector<std::vector<PageId>> more;  // by district

    Place place(Tables& tables, std::uint32_t district, std::uint32_t row);
  };

  Range take(Table table, std::uint64_t pages);
  void lay_out(std::uint32_t extent_pages);
  [[nodiscard]] const Range& range_of(PageId page) const;  // as they were taken
  [[nodiscard]] PageId placed(PageId page) const {
    const std::size_t extent = page >> extent_bits_;
    if (extent >= place_of_.size()) return page;
    return (place_of_[extent] << extent_bits_) + (page & ((PageId{1} << extent_bits_) - 1));
  }
  Range per_district(Table table, std::uint32_t rows, std::uint32_t rows_per_page,
                     std::uint32_t& pages_each);
  Growing growing(Table table, std::uint32_t rows, std::uint32_t rows_per_page);
  PageId append(Table table);

  std::uint32_t warehouses_;
  RowsPerPage rows_;
  PageId next_ = 0;
  PageId most_;
  std::vector<Range> ranges_;
  Range warehouse_, district_, customer_, by_name_, by_customer_, item_, stock_, undo_, new_order_;
  std::uint32_t customer_pages_ = 0;
  std::uint32_t by_name_pages_ = 0;
  std::uint32_t by_customer_pages_ = 0;
  std::uint32_t stock_pages_ = 0;
  std::uint32_t new_order_pages_ = 0;
  Growing orders_;
  Growing lines_;
  PageId history_page_ = 0;
  std::uint32_t history_rows_ = 0;  // in it
  PageId loaded_ = 0;
  std::uint32_t extent_bits_ = 0;
  std::vector<std::uint32_t> place_of_;  // by whole extent of the loaded pages, as they were taken
  std::vector<std::uint32_t> taken_at_;  // the other way round
  std::vector<Table> grown_;             // tables of the pages from loaded_ on
};

}  // namespace flashlab::dbms::tpcc
