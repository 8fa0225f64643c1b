#include "dbms/tpcc/tables.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"

namespace flashlab::dbms::tpcc {

namespace {

constexpr std::uint32_t kNames = 1000;
// New orders that wait for delivery are at most so many pages of a district: pages at the head are
// emptied while those at the end are filled, and used again.
constexpr std::uint32_t kSpareNewOrderPages = 2;
// Entries of a page above the leaves: 715 of customers and 822 of stock in MariaDB 10.11 after our
// load (16 KiB over the key, a page number and 5 bytes).
constexpr std::uint32_t kChildren = 700;
constexpr PageId kWhole = std::numeric_limits<PageId>::max();  // a page without an upper half

std::uint32_t pages_for(std::uint64_t rows, std::uint32_t per_page) {
  return static_cast<std::uint32_t>((rows + per_page - 1) / per_page);
}

void check(const RowsPerPage& r) {
  for (const std::uint32_t rows :
       {r.warehouse, r.district, r.customer, r.customer_by_name, r.history, r.new_order, r.orders,
        r.orders_by_customer, r.order_line, r.item, r.stock, r.order_line_new, r.order_line_room}) {
    require(rows >= 1, "TPC-C: a page must hold a row of each table");
  }
}

}  // namespace

Tables::Tables(std::uint32_t warehouses, const RowsPerPage& rows, std::uint32_t undo_pages,
               std::uint32_t most_pages, std::uint32_t extent_pages)
    : warehouses_(warehouses), rows_(rows), most_(most_pages) {
  require(warehouses >= 1, "TPC-C: at least one warehouse");
  require(undo_pages >= 1, "TPC-C: at least one undo page");
  check(rows);
  undo_ = take(Table::undo, undo_pages);
  warehouse_ = take(Table::warehouse, pages_for(warehouses, rows.warehouse));
  district_ = take(Table::district, pages_for(districts(), rows.district));
  item_ = take(Table::item, pages_for(kItems, rows.item));
  stock_pages_ = pages_for(kItems, rows.stock);
  stock_ = take(Table::stock, std::uint64_t{stock_pages_} * warehouses);
  customer_ = per_district(Table::customer, kCustomers, rows.customer, customer_pages_);
  by_name_ = per_district(Table::customer, kCustomers, rows.customer_by_name, by_name_pages_);
  new_order_pages_ = pages_for(kCustomers - kDelivered, rows.new_order) + kSpareNewOrderPages;
  new_order_ = take(Table::new_order, std::uint64_t{new_order_pages_} * districts());
  const Tree of_orders = file(Table::orders);
  const std::uint64_t all_orders = std::uint64_t{kCustomers} * districts();
  by_customer_ = splitting(Table::orders, of_orders, all_orders, rows.orders_by_customer);
  orders_ = growing(Table::orders, of_orders, kCustomers, rows.orders);
  lines_ = growing(Table::order_line, file(Table::order_line), kCustomers * kLinesOfOrder,
                   rows.order_line);
  lines_.rows_per_new_page = rows.order_line_new;
  lines_.room = rows.order_line_room;
  lines_.first_grown = kDelivered * kLinesOfOrder / rows.order_line;
  const std::uint32_t history_pages = pages_for(all_orders, rows.history);
  history_ = tree(Table::history, file(Table::history), history_pages);
  history_last_ = history_pages - 1;
  take(Table::history, history_pages);
  loaded_ = next_;
  if (extent_pages > 0) lay_out(extent_pages);
  history_page_ = placed(loaded_ - 1);
  history_rows_ = rows.history;
}

// Extents in the order in which tables that grow at steady rates, and are full at the same time,
// need them.
void Tables::lay_out(std::uint32_t extent_pages) {
  struct Need {
    std::uint32_t extent;
    const Range* range;
    std::uint64_t number;  // of the range's extents
  };
  extent_bits_ = static_cast<std::uint32_t>(std::bit_width(extent_pages)) - 1;
  std::vector<Need> needs;
  std::map<const Range*, std::uint64_t> extents;
  for (std::uint32_t extent = 0; extent < loaded_ >> extent_bits_; ++extent) {
    const Range& range = range_of(extent << extent_bits_);
    needs.push_back({extent, &range, extents[&range]++});
  }
  std::ranges::stable_sort(needs, [&](const Need& a, const Need& b) {
    return (2 * a.number + 1) * extents.at(b.range) < (2 * b.number + 1) * extents.at(a.range);
  });
  place_of_.resize(needs.size());
  taken_at_.resize(needs.size());
  for (std::uint32_t place = 0; place < needs.size(); ++place) {
    taken_at_[place] = needs[place].extent;
    place_of_[needs[place].extent] = place;
  }
}

Tables::Range Tables::take(Table table, std::uint64_t pages) {
  require(std::uint64_t{next_} + pages <= most_,
          "TPC-C: " + std::to_string(warehouses_) + " warehouses do not fit into " +
              std::to_string(most_) + " pages: a larger device or fewer warehouses");
  const Range range{next_, static_cast<std::uint32_t>(pages), table};
  next_ += range.pages;
  ranges_.push_back(range);
  return range;
}

Tables::Range Tables::per_district(Table table, std::uint32_t rows, std::uint32_t rows_per_page,
                                   std::uint32_t& pages_each) {
  pages_each = pages_for(rows, rows_per_page);
  return take(table, std::uint64_t{pages_each} * districts());
}

Tables::Growing Tables::growing(Table table, const Tree& file, std::uint32_t rows,
                                std::uint32_t rows_per_page) {
  Growing made;
  made.rows_per_page = made.rows_per_new_page = made.room = rows_per_page;
  made.tree = tree(table, file, pages_for(rows, rows_per_page) * districts());
  made.loaded = per_district(table, rows, rows_per_page, made.pages_of_district);
  made.more.resize(districts());
  made.upper.resize(districts());
  return made;
}

Tables::Splitting Tables::splitting(Table table, const Tree& file, std::uint64_t rows,
                                    std::uint32_t rows_per_page) {
  Splitting made;
  const std::uint32_t pages = pages_for(rows, rows_per_page);
  made.rows_per_page = rows_per_page;
  made.last_rows = static_cast<std::uint32_t>(rows - std::uint64_t{pages - 1} * rows_per_page);
  made.tree = tree(table, file, pages);
  made.loaded = take(table, pages);
  made.leaves.resize(pages);
  return made;
}

Tables::Tree Tables::file(Table table) {
  const Range pages = take(table, 2);
  return {pages.first, pages.first + 1, 0};
}

// `pages`: that are loaded, of the index.
Tables::Tree Tables::tree(Table table, const Tree& file, std::uint32_t pages) {
  Tree made = file;
  made.parents = take(table, pages_for(pages, kChildren)).first;
  return made;
}

PageId Tables::append(Table table) {
  if (next_ == most_) {
    throw OperatingError(ErrorKind::disk_full, "TPC-C: the database has grown beyond its " +
                                                   std::to_string(most_) + " pages");
  }
  grown_.push_back(table);
  return next_++;
}

Table Tables::table_of(PageId page) const {
  FLASHLAB_CHECK(page < next_);
  if (page >= loaded_) return grown_[page - loaded_];
  const std::size_t extent = page >> extent_bits_;
  if (extent >= taken_at_.size()) return range_of(page).table;
  return range_of((taken_at_[extent] << extent_bits_) + page % (PageId{1} << extent_bits_)).table;
}

const Tables::Range& Tables::range_of(PageId page) const {
  return *std::prev(std::ranges::upper_bound(ranges_, page, {}, &Range::first));
}

// But for the page itself and what comes next.
NewPage Tables::Tree::page_beside(const Tables& tables, std::uint32_t loaded_page) const {
  NewPage made;
  made.parent = tables.placed(parents + loaded_page / kChildren);
  made.header = tables.placed(header);
  made.inode = tables.placed(inode);
  return made;
}

Tables::Growing::Slot Tables::Growing::slot_of(std::uint32_t row) const {
  const std::uint32_t at = row / rows_per_page;
  if (at < pages_of_district) return {at, row % rows_per_page, rows_per_page};
  const std::uint32_t beyond = row - pages_of_district * rows_per_page;
  return {pages_of_district + beyond / rows_per_new_page, beyond % rows_per_new_page,
          rows_per_new_page};
}

PageId Tables::Growing::lower(const Tables& tables, std::uint32_t district,
                              std::uint32_t page) const {
  if (page >= pages_of_district) return more[district][page - pages_of_district];
  return tables.placed(loaded.first + district * pages_of_district + page);
}

PageId* Tables::Growing::upper_half(std::uint32_t district, std::uint32_t page) {
  const std::uint32_t at = page - first_grown;
  const bool is_there = page >= first_grown && at < upper[district].size();
  return is_there && upper[district][at] != kWhole ? &upper[district][at] : nullptr;
}

Place Tables::Growing::place(Tables& tables, std::uint32_t district, std::uint32_t row) {
  const Slot slot = slot_of(row);
  std::vector<PageId>& pages = more[district];
  std::optional<NewPage> created;
  while (slot.page >= pages_of_district + pages.size()) {
    created = made(tables, district, pages_of_district + static_cast<std::uint32_t>(pages.size()));
    pages.push_back(created->page = tables.append(loaded.table));
  }
  const PageId* half = upper_half(district, slot.page);
  if (half != nullptr && slot.at >= slot.rows / 2) return {*half, {}};
  return {lower(tables, district, slot.page), created};
}

std::optional<NewPage> Tables::Growing::grow(Tables& tables, std::uint32_t district,
                                             std::uint32_t row) {
  const Slot slot = slot_of(row);
  if (slot.at < room || upper_half(district, slot.page) != nullptr) return {};
  FLASHLAB_CHECK(slot.page >= first_grown);
  NewPage created = made(tables, district, slot.page);
  created.halved = lower(tables, district, slot.page);
  created.page = tables.append(loaded.table);
  upper[district].resize(slot.page - first_grown + 1, kWhole);
  upper[district].back() = created.page;
  return created;
}

// Behind that page of the district.
NewPage Tables::Growing::made(const Tables& tables, std::uint32_t district,
                              std::uint32_t page) const {
  const std::uint32_t beside = std::min(page, pages_of_district - 1);
  NewPage created = tree.page_beside(tables, district * pages_of_district + beside);
  created.next = next(tables, district, page);
  return created;
}

std::optional<PageId> Tables::Growing::next(const Tables& tables, std::uint32_t district,
                                            std::uint32_t page) const {
  if (page + 1 < pages_of_district + more[district].size()) {
    return lower(tables, district, page + 1);
  }
  if (district + 1 == more.size()) return {};
  return lower(tables, district + 1, 0);
}

PageId Tables::Splitting::find(const Tables& tables, std::uint32_t key) const {
  const std::vector<Leaf>& found = leaves[key / rows_per_page];
  if (found.empty()) return tables.placed(loaded.first + key / rows_per_page);
  const auto behind = std::ranges::upper_bound(found, key % rows_per_page, {}, &Leaf::first);
  return std::prev(behind)->page;
}

Place Tables::Splitting::add(Tables& tables, std::uint32_t key) {
  const std::uint32_t page = key / rows_per_page;
  const std::uint32_t at = key % rows_per_page;
  std::vector<Leaf>& found = leaves[page];
  if (found.empty()) {
    const std::uint32_t rows = page + 1 == loaded.pages ? last_rows : rows_per_page;
    found.push_back({0, rows, tables.placed(loaded.first + page)});
  }
  auto leaf = std::prev(std::ranges::upper_bound(found, at, {}, &Leaf::first));
  std::optional<NewPage> created;
  if (leaf->rows == rows_per_page) {
    created = tree.page_beside(tables, page);
    created->page = tables.append(loaded.table);
    created->halved = leaf->page;
    const auto behind = std::next(leaf);
    if (behind != found.end()) {
      created->next = behind->page;
    } else if (page + 1 < loaded.pages) {
      created->next = tables.placed(loaded.first + page + 1);
    }
    const std::uint32_t end = behind == found.end() ? rows_per_page : behind->first;
    const std::uint32_t half = leaf->rows / 2;
    const Leaf upper{leaf->first + (end - leaf->first) / 2, half, created->page};
    leaf->rows -= half;
    found.insert(behind, upper);
    leaf = std::prev(std::ranges::upper_bound(found, at, {}, &Leaf::first));
  }
  ++leaf->rows;
  return {leaf->page, created};
}

PageId Tables::warehouse(std::uint32_t w) const {
  return placed(warehouse_.first + w / rows_.warehouse);
}

PageId Tables::district(std::uint32_t d) const {
  return placed(district_.first + d / rows_.district);
}

PageId Tables::customer(std::uint32_t d, std::uint32_t c) const {
  return placed(customer_.first + d * customer_pages_ + c / rows_.customer);
}

PageId Tables::customer_by_name(std::uint32_t d, std::uint32_t name) const {
  return placed(by_name_.first + d * by_name_pages_ +
                name * (kCustomers / kNames) / rows_.customer_by_name);
}

PageId Tables::item(std::uint32_t i) const { return placed(item_.first + i / rows_.item); }

PageId Tables::stock(std::uint32_t w, std::uint32_t i) const {
  return placed(stock_.first + w * stock_pages_ + i / rows_.stock);
}

Place Tables::new_order(std::uint32_t d, std::uint32_t o) const {
  const std::uint32_t at = o / rows_.new_order % new_order_pages_;
  return {placed(new_order_.first + d * new_order_pages_ + at), {}};
}

Place Tables::next_history() {
  std::optional<NewPage> created;
  if (history_rows_ == rows_.history) {
    created = history_.page_beside(*this, history_last_);
    history_page_ = created->page = append(Table::history);
    history_rows_ = 0;
  }
  ++history_rows_;
  return {history_page_, created};
}

}  // namespace flashlab::dbms::tpcc
