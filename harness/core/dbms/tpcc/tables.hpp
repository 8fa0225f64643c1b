// Where TPC-C's rows lie, in pages of the database: clustered by primary key, filled in its order.
//
// Tables are loaded side by side: each takes an extent at a time, in proportion to its size, so
// that extents of all of them alternate (`extent_pages`; 0: each table lies in one piece). Orders,
// their lines and new orders grow at the end of each district's range, history at the end of the
// table; a full page is followed by a new one at the end of the database. Row counts are the
// standard's (TPC-C 5.11, clause 1.2).
//
// A B-tree's page that has no room left is cut in two, its upper half going to a new page:
//  - of orders by customer, which are full after the load, when one is added in their middle;
//  - of order lines, when they are delivered: a date takes 5 bytes that were none, and of a page
//    that was filled in order a sixteenth is free.
// Each new page changes others, too: the next page in order points back to it, its parent gets an
// entry, the file's header and the segment's inode say that it is taken. Source: InnoDB's
// btr0btr.cc (btr_page_split_and_insert), fsp0fsp.cc (fseg_alloc_free_page). Left out: pages that
// are merged as orders leave the table of new ones, and customers' rows that grow.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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
  std::uint32_t order_line_new = 1;   // a page filled after the load
  std::uint32_t order_line_room = 1;  // a page has room for the delivery date of so many
};

// A page that did not exist before, and those that are changed for it.
struct NewPage {
  PageId page = 0;
  std::optional<PageId> halved;  // whose upper half it got; none: it is empty
  std::optional<PageId> next;    // in order, that points back to it
  PageId parent = 0;
  PageId header = 0;  // of its file
  PageId inode = 0;   // of its segment
};

// The page of a row, and one that was made for it: that page, or the other half of it.
struct Place {
  PageId page = 0;
  std::optional<NewPage> made;

  [[nodiscard]] bool is_new() const { return made && made->page == page; }
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
  [[nodiscard]] PageId orders_by_customer(std::uint32_t d, std::uint32_t c) const {
    return by_customer_.find(*this, d * kCustomers + c);
  }
  Place add_order_by_customer(std::uint32_t d, std::uint32_t c) {
    return by_customer_.add(*this, d * kCustomers + c);
  }
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
  // That line gets its date of delivery; the page that this may take. Lines of a district in turn.
  std::optional<NewPage> date_line(std::uint32_t d, std::uint32_t o, std::uint32_t line) {
    return lines_.grow(*this, d, o * kLinesOfOrder + line);
  }

 private:
  struct Range {
    PageId first = 0;
    std::uint32_t pages = 0;
    Table table = Table::item;
  };
  // A table's file: its header, its segment's inode, and the parents of an index's loaded pages.
  struct Tree {
    PageId header = 0;
    PageId inode = 0;
    PageId parents = 0;

    [[nodiscard]] NewPage page_beside(const Tables& tables, std::uint32_t loaded_page) const;
  };
  // Rows of each district, in order of their number; new ones at its end.
  struct Growing {
    Range loaded;
    Tree tree;
    std::uint32_t rows_per_page = 1;
    std::uint32_t rows_per_new_page = 1;
    std::uint32_t room = 1;  // for so many rows' growth
    std::uint32_t pages_of_district = 0;
    std::uint32_t first_grown = 0;           // page of a district
    std::vector<std::vector<PageId>> more;   // by district
    std::vector<std::vector<PageId>> upper;  // halves, by district, from the first page that grows

    Place place(Tables& tables, std::uint32_t district, std::uint32_t row);
    std::optional<NewPage> grow(Tables& tables, std::uint32_t district, std::uint32_t row);

   private:
    struct Slot {
      std::uint32_t page;  // of the district
      std::uint32_t at;    // in the page
      std::uint32_t rows;  // of the page
    };
    [[nodiscard]] Slot slot_of(std::uint32_t row) const;
    [[nodiscard]] PageId lower(const Tables& tables, std::uint32_t district,
                               std::uint32_t page) const;
    [[nodiscard]] PageId* upper_half(std::uint32_t district, std::uint32_t page);
    [[nodiscard]] std::optional<PageId> next(const Tables& tables, std::uint32_t district,
                                             std::uint32_t page) const;
    [[nodiscard]] NewPage made(const Tables& tables, std::uint32_t district,
                               std::uint32_t page) const;
  };
  // An index that is full after its load, one row a key, and takes others anywhere.
  struct Splitting {
    Range loaded;
    Tree tree;
    std::uint32_t rows_per_page = 1;
    std::uint32_t last_rows = 1;  // of the last loaded page

    [[nodiscard]] PageId find(const Tables& tables, std::uint32_t key) const;
    Place add(Tables& tables, std::uint32_t key);

    struct Leaf {
      std::uint32_t first;  // key, counted in the loaded page
      std::uint32_t rows;
      PageId page;
    };
    std::vector<std::vector<Leaf>> leaves;  // by loaded page; none: it is as it was
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
  Growing growing(Table table, const Tree& file, std::uint32_t rows, std::uint32_t rows_per_page);
  Splitting splitting(Table table, const Tree& file, std::uint64_t rows,
                      std::uint32_t rows_per_page);
  Tree file(Table table);
  Tree tree(Table table, const Tree& file, std::uint32_t pages);
  PageId append(Table table);

  std::uint32_t warehouses_;
  RowsPerPage rows_;
  PageId next_ = 0;
  PageId most_;
  std::vector<Range> ranges_;
  Range warehouse_, district_, customer_, by_name_, item_, stock_, undo_, new_order_;
  std::uint32_t customer_pages_ = 0;
  std::uint32_t by_name_pages_ = 0;
  std::uint32_t stock_pages_ = 0;
  std::uint32_t new_order_pages_ = 0;
  Splitting by_customer_;
  Growing orders_;
  Growing lines_;
  Tree history_;
  std::uint32_t history_last_ = 0;  // loaded page
  PageId history_page_ = 0;
  std::uint32_t history_rows_ = 0;  // in it
  PageId loaded_ = 0;
  std::uint32_t extent_bits_ = 0;
  std::vector<std::uint32_t> place_of_;  // by whole extent of the loaded pages, as they were taken
  std::vector<std::uint32_t> taken_at_;  // the other way round
  std::vector<Table> grown_;             // tables of the pages from loaded_ on
};

}  // namespace flashlab::dbms::tpcc
