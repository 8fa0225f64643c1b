#include "dbms/tpcc/tables.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "base/check.hpp"
#include "base/units.hpp"

namespace flashlab::dbms::tpcc {

namespace {

constexpr std::uint32_t kNames = 1000;
// New orders that wait for delivery are at most so many pages of a district: pages at the head are
// emptied while those at the end are filled, and used again.
constexpr std::uint32_t kSpareNewOrderPages = 2;

std::uint32_t pages_for(std::uint64_t rows, std::uint32_t per_page) {
  return static_cast<std::uint32_t>((rows + per_page - 1) / per_page);
}

void check(const RowsPerPage& r) {
  for (const std::uint32_t rows :
       {r.warehouse, r.district, r.customer, r.customer_by_name, r.history, r.new_order, r.orders,
        r.orders_by_customer, r.order_line, r.item, r.stock}) {
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
  by_customer_ =
      per_district(Table::orders, kCustomers, rows.orders_by_customer, by_customer_pages_);
  new_order_pages_ = pages_for(kCustomers - kDelivered, rows.new_order) + kSpareNewOrderPages;
  new_order_ = take(Table::new_order, std::uint64_t{new_order_pages_} * districts());
  orders_ = growing(Table::orders, kCustomers, rows.orders);
  lines_ = growing(Table::order_line, kCustomers * kLinesOfOrder, rows.order_line);
  take(Table::history, pages_for(std::uint64_t{kCustomers} * districts(), rows.history));
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

Tables::Growing Tables::growing(Table table, std::uint32_t rows, std::uint32_t rows_per_page) {
  Growing made;
  made.rows_per_page = rows_per_page;
  made.loaded = per_district(table, rows, rows_per_page, made.pages_of_district);
  made.more.resize(districts());
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

Place Tables::Growing::place(Tables& tables, std::uint32_t district, std::uint32_t row) {
  const std::uint32_t at = row / rows_per_page;
  if (at < pages_of_district) {
    return {tables.placed(loaded.first + district * pages_of_district + at)};
  }
  std::vector<PageId>& pages = more[district];
  const std::uint32_t beyond = at - pages_of_district;
  const bool is_new = beyond >= pages.size();
  while (beyond >= pages.size()) pages.push_back(tables.append(loaded.table));
  return {pages[beyond], is_new};
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

PageId Tables::orders_by_customer(std::uint32_t d, std::uint32_t c) const {
  return placed(by_customer_.first + d * by_customer_pages_ + c / rows_.orders_by_customer);
}

PageId Tables::item(std::uint32_t i) const { return placed(item_.first + i / rows_.item); }

PageId Tables::stock(std::uint32_t w, std::uint32_t i) const {
  return placed(stock_.first + w * stock_pages_ + i / rows_.stock);
}

Place Tables::new_order(std::uint32_t d, std::uint32_t o) const {
  return {placed(new_order_.first + d * new_order_pages_ + o / rows_.new_order % new_order_pages_)};
}

Place Tables::next_history() {
  const bool is_new = history_rows_ == rows_.history;
  if (is_new) {
    history_page_ = append(Table::history);
    history_rows_ = 0;
  }
  ++history_rows_;
  return {history_page_, is_new};
}

}  // namespace flashlab::dbms::tpcc
