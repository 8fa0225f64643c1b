#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/tpcc/tables.hpp"
#include "dbms/tpcc/transactions.hpp"

namespace flashlab::dbms::tpcc {
namespace test_tpcc {

constexpr std::uint32_t kMany = 50'000'000;
constexpr std::uint32_t kNames = 1000;

RowsPerPage usual() { return {150, 140, 26, 400, 231, 450, 377, 878, 220, 171, 46, 232, 204}; }

// A page for each row, and for the lines of one order, so that a page tells what it holds.
RowsPerPage single() {
  RowsPerPage rows;
  rows.order_line = rows.order_line_new = rows.order_line_room = kLinesOfOrder;
  rows.orders_by_customer = kMany;
  return rows;
}

// --- tables

// Who has put how many rows onto each page.
class Ownership {
 public:
  explicit Ownership(const Tables& tables) : tables_(tables) {}

  void row(const std::string& index, Table table, PageId page, std::uint32_t at_most) {
    ASSERT_LT(page, tables_.pages());
    ASSERT_EQ(tables_.table_of(page), table) << index;
    const auto [owner, is_new] = owners_.try_emplace(page, index);
    ASSERT_EQ(owner->second, index) << "page " << page;
    ASSERT_LE(++rows_[page], at_most) << index;
  }
  [[nodiscard]] std::size_t pages() const { return rows_.size(); }

 private:
  const Tables& tables_;
  std::map<PageId, std::string> owners_;
  std::map<PageId, std::uint32_t> rows_;
};

TEST(TpccTables, NoTwoTablesShareAPageAndNoPageHasTooManyRows) {
  const RowsPerPage r = usual();
  Tables tables(3, r, 7, kMany, 0);
  Ownership found(tables);
  for (std::uint32_t at = 0; at < 7; ++at) found.row("undo", Table::undo, tables.undo(at), 1);
  for (std::uint32_t i = 0; i < kItems; ++i) found.row("item", Table::item, tables.item(i), r.item);
  for (std::uint32_t w = 0; w < 3; ++w) {
    found.row("warehouse", Table::warehouse, tables.warehouse(w), r.warehouse);
    for (std::uint32_t i = 0; i < kItems; ++i) {
      found.row("stock", Table::stock, tables.stock(w, i), r.stock);
    }
  }
  for (std::uint32_t d = 0; d < tables.districts(); ++d) {
    const std::string of = std::to_string(d);
    found.row("district", Table::district, tables.district(d), r.district);
    for (std::uint32_t c = 0; c < kCustomers; ++c) {
      found.row("customer" + of, Table::customer, tables.customer(d, c), r.customer);
      found.row("by customer", Table::orders, tables.orders_by_customer(d, c),
                r.orders_by_customer);
    }
    for (std::uint32_t name = 0; name < kNames; ++name) {
      for (int each = 0; each < 3; ++each) {
        found.row("by name" + of, Table::customer, tables.customer_by_name(d, name),
                  r.customer_by_name + 2);  // three customers of one name stay together
      }
    }
    for (std::uint32_t o = 0; o < kCustomers; ++o) {
      found.row("orders" + of, Table::orders, tables.order(d, o).page, r.orders);
      for (std::uint32_t line = 0; line < kLinesOfOrder; ++line) {
        found.row("lines" + of, Table::order_line, tables.order_line(d, o, line).page,
                  r.order_line);
      }
    }
    for (std::uint32_t o = kDelivered; o < kCustomers; ++o) {
      found.row("new orders" + of, Table::new_order, tables.new_order(d, o).page, r.new_order);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(tables.pages(), tables.loaded_pages()) << "nothing has grown";
  // History is the rest; new orders have spare pages.
  const std::uint32_t history = (kCustomers * tables.districts() + r.history - 1) / r.history;
  // Files of three tables have a header and an inode; four indexes have a page of parents or two.
  constexpr std::uint32_t kBeside = 3 * 2 + 4 * 2 + 2;
  EXPECT_LE(found.pages() + history, tables.loaded_pages());
  EXPECT_GE(found.pages() + history + 3 * tables.districts() + kBeside, tables.loaded_pages());
  EXPECT_EQ(tables.table_of(tables.loaded_pages() - 1), Table::history);
}

TEST(TpccTables, GrowthAppendsAPageWhenTheLastOneIsFull) {
  const RowsPerPage r = usual();
  Tables tables(1, r, 1, kMany, 0);
  Prng random(1);
  std::vector<std::uint32_t> next(tables.districts(), kCustomers);
  std::map<PageId, std::set<std::uint32_t>> districts_of;
  std::map<PageId, std::uint32_t> rows;
  for (int i = 0; i < 50'000; ++i) {
    const auto d = static_cast<std::uint32_t>(random.below(tables.districts()));
    const PageId end = tables.pages();
    const Place place = tables.order(d, next[d]++);
    EXPECT_EQ(place.is_new(), place.page == end);
    EXPECT_EQ(tables.pages(), end + (place.is_new() ? 1 : 0));
    EXPECT_EQ(tables.table_of(place.page), Table::orders);
    districts_of[place.page].insert(d);
    EXPECT_LE(++rows[place.page], r.orders);
    EXPECT_EQ(tables.order(d, next[d] - 1).page, place.page) << "it stays where it is";
    EXPECT_FALSE(tables.order(d, next[d] - 1).is_new());
    if (HasFailure()) return;
  }
  for (const auto& [page, of] : districts_of) EXPECT_EQ(of.size(), 1U) << page;
  // All pages but the first and last one of a district are full.
  EXPECT_LE(rows.size(), 50'000 / r.orders + 2 * tables.districts());
}

TEST(TpccTables, HistoryIsOnePageAfterTheOther) {
  const RowsPerPage r = usual();
  Tables tables(1, r, 1, kMany, 0);
  for (std::uint32_t i = 0; i < 5 * r.history; ++i) {
    const Place place = tables.next_history();
    EXPECT_EQ(place.is_new(), i % r.history == 0);
    EXPECT_EQ(place.page, tables.loaded_pages() + i / r.history);
    EXPECT_EQ(tables.table_of(place.page), Table::history);
  }
}

// The pages that a new one changes: of the same table, loaded, and not a leaf of it.
void expect_beside(const Tables& tables, const NewPage& made, Table table) {
  EXPECT_EQ(tables.table_of(made.page), table);
  for (const PageId page : {made.parent, made.header, made.inode}) {
    EXPECT_LT(page, tables.loaded_pages());
    EXPECT_EQ(tables.table_of(page), table);
  }
  EXPECT_EQ(std::set<PageId>({made.page, made.parent, made.header, made.inode}).size(), 4U);
}

TEST(TpccTables, APageOfOrdersPointsBackFromTheNextDistricts) {
  Tables tables(2, usual(), 1, kMany, 0);
  const std::uint32_t first = (kCustomers + usual().orders - 1) / usual().orders * usual().orders;
  for (const std::uint32_t d : {0U, 7U, 19U}) {
    const Place place = tables.order(d, first);
    ASSERT_TRUE(place.is_new());
    EXPECT_FALSE(place.made->halved);
    expect_beside(tables, *place.made, Table::orders);
    if (d == 19) {
      EXPECT_FALSE(place.made->next) << "the last one";
    } else {
      EXPECT_EQ(place.made->next, tables.order(d + 1, 0).page);
    }
  }
}

TEST(TpccTables, ParentsAreSharedByNeighboursOnly) {
  Tables tables(60, usual(), 1, kMany, 0);
  std::map<PageId, std::uint32_t> children;
  std::set<PageId> headers;
  const std::uint32_t first = (kCustomers + usual().orders - 1) / usual().orders * usual().orders;
  for (std::uint32_t d = 0; d < tables.districts(); ++d) {
    const Place place = tables.order(d, first);
    headers.insert(place.made->header);
    ++children[place.made->parent];
  }
  EXPECT_EQ(headers.size(), 1U);
  // 8 pages of a district, 700 under a parent.
  EXPECT_EQ(children.size(), (8U * tables.districts() + 699U) / 700U);
  for (const auto& [page, count] : children) EXPECT_LE(count, 700U / 8U + 1U);
}

// All lines of a district in turn: a page is cut once, and its rows stay where they are then.
TEST(TpccTables, APageOfLinesIsCutInTwoWhenItHasNoRoomForDates) {
  const RowsPerPage r = usual();
  Tables tables(1, r, 1, kMany, 0);
  constexpr std::uint32_t kOrders = 2000;
  constexpr std::uint32_t kOf = 3;
  for (std::uint32_t o = kCustomers; o < kCustomers + kOrders; ++o) {
    (void)tables.order_line(kOf, o, 0);
    (void)tables.order_line(kOf, o, kLinesOfOrder - 1);
  }
  const PageId grown = tables.pages();
  std::map<PageId, std::uint32_t> dated;  // since it was made or loaded
  std::set<PageId> halved;
  std::uint32_t cuts = 0;
  for (std::uint32_t o = kDelivered; o < kCustomers + kOrders; ++o) {
    for (std::uint32_t line = 0; line < kLinesOfOrder; ++line) {
      const PageId before = tables.order_line(kOf, o, line).page;
      const auto made = tables.date_line(kOf, o, line);
      const PageId after = tables.order_line(kOf, o, line).page;
      ++dated[after];
      if (!made) {
        EXPECT_EQ(after, before);
        continue;
      }
      ++cuts;
      expect_beside(tables, *made, Table::order_line);
      EXPECT_EQ(made->halved, before);
      EXPECT_EQ(made->page, after) << "the last rows of a page are the ones without room";
      EXPECT_TRUE(halved.insert(before).second) << "once";
      EXPECT_TRUE(made->next);
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(tables.pages(), grown + cuts);
  // Every page but the ends has been cut.
  const std::uint32_t rows = (kCustomers + kOrders - kDelivered) * kLinesOfOrder;
  EXPECT_NEAR(cuts, rows / static_cast<double>(r.order_line_new), rows / 220.0 - rows / 232.0 + 3);
  for (const auto& [page, count] : dated) EXPECT_LE(count, r.order_line_room) << page;
}

TEST(TpccTables, APageWithRoomForAllDatesIsNotCut) {
  RowsPerPage r = usual();
  r.order_line_room = r.order_line_new;
  Tables tables(1, r, 1, kMany, 0);
  for (std::uint32_t o = kDelivered; o < kCustomers; ++o) {
    for (const std::uint32_t line : {0U, 9U}) EXPECT_FALSE(tables.date_line(0, o, line));
  }
}

// A slow, obvious index beside it: sorted rows, and which of them are on which page.
TEST(TpccTables, OrdersByCustomerAreCutWhereOneIsAddedToAFullPage) {
  const RowsPerPage r = usual();
  Tables tables(1, r, 1, kMany, 0);
  std::map<PageId, std::uint32_t> rows;
  const std::uint32_t keys = tables.districts() * kCustomers;
  for (std::uint32_t key = 0; key < keys; ++key) {
    ++rows[tables.orders_by_customer(key / kCustomers, key % kCustomers)];
  }
  EXPECT_EQ(rows.size(), (keys + r.orders_by_customer - 1) / r.orders_by_customer);
  Prng random(1);
  std::uint32_t cuts = 0;
  for (int i = 0; i < 60'000 && !HasFailure(); ++i) {
    // One customer of three is asked for most of the time.
    const auto key = static_cast<std::uint32_t>(random.below(4) == 0 ? random.below(keys)
                                                                     : random.below(keys / 3) * 3);
    const std::uint32_t d = key / kCustomers;
    const std::uint32_t c = key % kCustomers;
    const PageId before = tables.orders_by_customer(d, c);
    const bool is_full = rows[before] == r.orders_by_customer;
    const Place place = tables.add_order_by_customer(d, c);
    EXPECT_EQ(place.made.has_value(), is_full);
    if (place.made) {
      ++cuts;
      expect_beside(tables, *place.made, Table::orders);
      EXPECT_EQ(place.made->halved, before);
      EXPECT_TRUE(place.page == before || place.page == place.made->page);
      rows[place.made->page] = rows[before] / 2;
      rows[before] -= rows[before] / 2;
    }
    EXPECT_EQ(tables.orders_by_customer(d, c), place.page);
    EXPECT_LE(++rows[place.page], r.orders_by_customer);
  }
  EXPECT_GE(cuts, keys / r.orders_by_customer) << "each, and some of them again";
  // Pages in the order of keys are each in one piece.
  std::set<PageId> seen;
  PageId last = kMany;
  for (std::uint32_t key = 0; key < keys; ++key) {
    const PageId page = tables.orders_by_customer(key / kCustomers, key % kCustomers);
    EXPECT_TRUE(page == last || seen.insert(page).second) << page;
    last = page;
  }
  EXPECT_EQ(seen.size(), rows.size());
}

// More orders of one customer than a page holds: the younger ones have pages of their own.
TEST(TpccTables, OneCustomersOrdersFillPages) {
  const RowsPerPage r = usual();
  Tables tables(1, r, 1, kMany, 0);
  std::set<PageId> pages;
  for (std::uint32_t i = 0; i < 5 * r.orders_by_customer; ++i) {
    pages.insert(tables.add_order_by_customer(2, 17).page);
  }
  EXPECT_GE(pages.size(), 5U);
  EXPECT_LE(pages.size(), 30U);
  EXPECT_TRUE(pages.contains(tables.orders_by_customer(2, 17)));
}

TEST(TpccTables, NewOrdersComeBackToPagesOfDeliveredOnes) {
  const RowsPerPage r = usual();
  const Tables tables(2, r, 1, kMany, 0);
  const std::uint32_t waiting = kCustomers - kDelivered;
  for (const std::uint32_t d : {0U, 19U}) {
    std::set<PageId> pages;
    for (std::uint32_t o = kDelivered; o < 20'000; ++o) {
      const Place place = tables.new_order(d, o);
      EXPECT_FALSE(place.is_new());
      pages.insert(place.page);
      if (o >= kDelivered + waiting && o / r.new_order != (o - waiting) / r.new_order) {
        EXPECT_NE(place.page, tables.new_order(d, o - waiting).page);
      }
    }
    EXPECT_LE(pages.size(), waiting / r.new_order + 3);
  }
}

TEST(TpccTables, ADatabaseThatOutgrowsItsPagesIsFull) {
  const std::uint32_t loaded = Tables(1, usual(), 1, kMany, 0).loaded_pages();
  Tables tables(1, usual(), 1, loaded + 1, 0);
  EXPECT_TRUE(tables.next_history().is_new());
  try {
    (void)tables.order(0, kCustomers + usual().orders);
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk_full);
  }
  EXPECT_THROW(Tables(1, usual(), 1, loaded - 1, 0), OperatingError);
}

// What each page is, as seen from outside: of each row's page.
std::map<PageId, Table> pages_of(Tables& tables) {
  std::map<PageId, Table> found;
  const auto see = [&](PageId page, Table table) {
    EXPECT_EQ(tables.table_of(page), table);
    EXPECT_TRUE(found.try_emplace(page, table).first->second == table);
  };
  for (std::uint32_t w = 0; w < tables.warehouses(); ++w) {
    see(tables.warehouse(w), Table::warehouse);
    for (std::uint32_t i = 0; i < kItems; ++i) see(tables.stock(w, i), Table::stock);
  }
  for (std::uint32_t i = 0; i < kItems; ++i) see(tables.item(i), Table::item);
  for (std::uint32_t d = 0; d < tables.districts(); ++d) {
    see(tables.district(d), Table::district);
    for (std::uint32_t c = 0; c < kCustomers; ++c) {
      see(tables.customer(d, c), Table::customer);
      see(tables.customer_by_name(d, c % 1000), Table::customer);
      see(tables.orders_by_customer(d, c), Table::orders);
      see(tables.order(d, c).page, Table::orders);
      see(tables.order_line(d, c, 9).page, Table::order_line);
    }
  }
  return found;
}

TEST(TpccTables, LoadedSideBySideTheirExtentsAlternate) {
  constexpr PageId kExtent = 64;
  Tables apart(2, usual(), 7, kMany, 0);
  Tables tables(2, usual(), 7, kMany, kExtent + 5);  // counts as 64
  EXPECT_EQ(tables.loaded_pages(), apart.loaded_pages());
  const std::map<PageId, Table> found = pages_of(tables);
  EXPECT_EQ(found.size(), pages_of(apart).size());  // no two rows of different pages share one now
  EXPECT_LT(found.rbegin()->first, tables.loaded_pages());
  // A row's neighbours on its page stay; so do pages within an extent.
  for (std::uint32_t i = 0; i < kItems; i += 7) {
    EXPECT_EQ(tables.stock(1, i) % kExtent, apart.stock(1, i) % kExtent);
    EXPECT_EQ(tables.stock(1, i) == tables.stock(1, 0), apart.stock(1, i) == apart.stock(1, 0));
  }
  // Of what lies before any place each table has its share, up to an extent.
  std::map<Table, double> all;
  for (const auto& [page, table] : found) ++all[table];
  std::map<Table, double> before;
  for (const auto& [page, table] : found) {
    ++before[table];
    if (all[table] < 8 * kExtent || page % kExtent != kExtent - 1) continue;
    const double share = static_cast<double>(page) / tables.loaded_pages();
    EXPECT_NEAR(before[table], share * all[table], 3 * kExtent) << page;
  }
}

TEST(TpccTables, WithoutExtentsEachLiesInOnePiece) {
  Tables tables(2, usual(), 7, kMany, 0);
  std::map<Table, std::set<std::uint32_t>> pieces;
  std::uint32_t piece = 0;
  Table last = Table::undo;
  for (PageId page = 0; page < tables.loaded_pages(); ++page) {
    const Table table = tables.table_of(page);
    if (table != last) ++piece;
    pieces[last = table].insert(piece);
  }
  EXPECT_EQ(pieces[Table::stock].size(), 1U);
  EXPECT_EQ(pieces[Table::order_line].size(), 1U);
}

TEST(TpccTables, RefusesWhatMakesNoDatabase) {
  EXPECT_THROW(Tables(0, usual(), 1, kMany, 0), OperatingError);
  EXPECT_THROW(Tables(1, usual(), 0, kMany, 0), OperatingError);
  RowsPerPage rows = usual();
  rows.stock = 0;
  EXPECT_THROW(Tables(1, rows, 1, kMany, 0), OperatingError);
}

// --- transactions

WorkloadParameters workload_of(std::uint32_t warehouses, std::uint64_t seed = 1) {
  WorkloadParameters p;
  p.warehouses = warehouses;
  p.users = 4;
  p.rows = single();
  p.redo = {100, 150, 200, 50};
  p.undo_pages = 4 * 8;
  p.undo_bytes_per_update = 100;
  p.undo_bytes_per_insert = 30;
  p.most_pages = kMany;
  p.seed = seed;
  return p;
}

// What a page holds, of tables with one row a page.
class Reader {
 public:
  explicit Reader(const Workload& workload)
      : t(workload.tables()),
        loaded(t.warehouses(), single(), 4 * 8, kMany, 0),
        orders_(loaded.order(0, 0).page),
        lines_(loaded.order_line(0, 0, 0).page) {}

  [[nodiscard]] bool is(const Touch& touch, Table table) const {
    return t.table_of(touch.page) == table;
  }
  [[nodiscard]] std::uint32_t district(const Touch& touch) const {
    return touch.page - t.district(0);
  }
  [[nodiscard]] std::uint32_t item(const Touch& touch) const { return touch.page - t.item(0); }
  // Warehouse and item.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> stock(const Touch& touch) const {
    return {(touch.page - t.stock(0, 0)) / kItems, (touch.page - t.stock(0, 0)) % kItems};
  }
  [[nodiscard]] bool is_customer_row(const Touch& touch) const {
    return is(touch, Table::customer) && touch.page < t.customer_by_name(0, 0);
  }
  // District and customer.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> customer(const Touch& touch) const {
    const std::uint32_t row = touch.page - t.customer(0, 0);
    return {row / kCustomers, row % kCustomers};
  }
  [[nodiscard]] bool is_order_row(const Touch& touch) const {
    return is(touch, Table::orders) && touch.page >= orders_;
  }
  // District and number of an order that was loaded.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> loaded_order(PageId page) const {
    return {(page - orders_) / kCustomers, (page - orders_) % kCustomers};
  }

  const Tables& t;

 private:
  Tables loaded;
  PageId orders_;
  PageId lines_;
};

struct SeenOrder {
  std::uint32_t district = 0;
  std::uint32_t number = 0;
  std::uint32_t customer = 0;
  std::vector<std::uint32_t> items;
};

// Runs transactions, and keeps what new orders were made of.
class Shop {
 public:
  explicit Shop(const WorkloadParameters& p)
      : workload(p),
        see(workload),
        next(workload.tables().districts(), kCustomers),
        users_(p.users) {}

  const Transaction& step() {
    workload.next(user_, now);
    user_ = (user_ + 1) % users_;
    ++kinds[static_cast<std::size_t>(now.kind)];
    if (now.kind == Kind::new_order) keep();
    return now;
  }
  void run(int transactions, const std::function<void(const Transaction&)>& look) {
    for (int i = 0; i < transactions && !testing::Test::HasFailure(); ++i) look(step());
  }
  [[nodiscard]] std::vector<Touch> of(Table table) const {
    std::vector<Touch> found;
    std::ranges::copy_if(now.touches, std::back_inserter(found), [&](const Touch& touch) {
      return touch.access != Access::tree && touch.access != Access::file && see.is(touch, table);
    });
    return found;
  }
  // District and number.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> order(const Touch& touch) const {
    const auto made = orders.find(touch.page);
    if (made == orders.end()) return see.loaded_order(touch.page);
    return {made->second.district, made->second.number};
  }

  Workload workload;
  Reader see;
  Transaction now;
  std::array<int, kKinds> kinds{};
  std::map<PageId, SeenOrder> orders;  // by the row's page: those that were not loaded
  std::map<std::pair<std::uint32_t, std::uint32_t>, PageId> page_of;
  std::vector<std::uint32_t> next;  // number, by district

 private:
  void keep() {
    SeenOrder order;
    order.district = see.district(of(Table::district).at(0));
    order.number = next[order.district]++;
    for (const Touch& touch : of(Table::item)) order.items.push_back(see.item(touch));
    for (const Touch& touch : of(Table::customer)) order.customer = see.customer(touch).second;
    for (const Touch& touch : of(Table::orders)) {
      if (!see.is_order_row(touch)) continue;
      EXPECT_EQ(touch.access, Access::create) << "a page for each row";
      page_of[{order.district, order.number}] = touch.page;
      orders.emplace(touch.page, order);
    }
  }

  std::uint32_t users_;
  std::uint32_t user_ = 0;
};

TEST(TpccTransactions, AreTheStandardMix) {
  Shop shop(workload_of(2));
  constexpr int kRuns = 100'000;
  shop.run(kRuns, [](const Transaction&) {});
  constexpr std::array<double, kKinds> kShares{0.45, 0.43, 0.04, 0.04, 0.04};
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    EXPECT_NEAR(shop.kinds[kind] / static_cast<double>(kRuns), kShares[kind], 0.006) << kind;
  }
}

TEST(TpccTransactions, ANewOrderChangesTheStockOfItsItems) {
  Shop shop(workload_of(3));
  double orders = 0;
  double lines = 0;
  double remote = 0;
  std::set<std::size_t> sizes;
  shop.run(40'000, [&](const Transaction& t) {
    if (t.kind != Kind::new_order) return;
    const std::uint32_t home = shop.see.district(shop.of(Table::district)[0]) / kDistricts;
    const auto items = shop.of(Table::item);
    const auto stocks = shop.of(Table::stock);
    ASSERT_EQ(items.size(), stocks.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto [warehouse, item] = shop.see.stock(stocks[i]);
      EXPECT_EQ(item, shop.see.item(items[i]));
      EXPECT_EQ(stocks[i].access, Access::write);
      EXPECT_LT(warehouse, 3U);
      remote += warehouse != home ? 1 : 0;
    }
    EXPECT_EQ(shop.of(Table::warehouse).at(0).page, shop.see.t.warehouse(home));
    EXPECT_EQ(shop.of(Table::new_order).size(), 1U);
    sizes.insert(items.size());
    lines += static_cast<double>(items.size());
    orders += 1;
  });
  EXPECT_NEAR(lines / orders, 10.0, 0.12);
  EXPECT_EQ(*sizes.begin(), 5U);
  EXPECT_EQ(*sizes.rbegin(), 15U);
  EXPECT_EQ(sizes.size(), 11U);
  EXPECT_NEAR(remote / lines, 0.01, 0.0015);
}

TEST(TpccTransactions, PaymentsAreByNameSixTimesInTenAndForOtherWarehousesSometimes) {
  Shop shop(workload_of(3));
  double payments = 0;
  double by_name = 0;
  double elsewhere = 0;
  shop.run(40'000, [&](const Transaction& t) {
    if (t.kind != Kind::payment) return;
    const std::uint32_t home = shop.see.district(shop.of(Table::district)[0]) / kDistricts;
    const auto customers = shop.of(Table::customer);
    EXPECT_EQ(customers.back().access, Access::write);
    const auto [district, customer] = shop.see.customer(customers.back());
    EXPECT_LT(customer, kCustomers);
    EXPECT_EQ(shop.of(Table::history).size(), 1U);
    EXPECT_EQ(shop.of(Table::warehouse).at(0).access, Access::write);
    ++payments;
    by_name += shop.see.is_customer_row(customers.front()) ? 0 : 1;
    elsewhere += district / kDistricts != home ? 1 : 0;
    for (const Touch& touch : customers) {
      if (!shop.see.is_customer_row(touch)) continue;
      EXPECT_EQ(shop.see.customer(touch).first, district);
      EXPECT_EQ(touch.access, Access::write) << "of the others of that name the index has enough";
    }
  });
  EXPECT_NEAR(by_name / payments, 0.6, 0.015);
  EXPECT_NEAR(elsewhere / payments, 0.15, 0.012);
}

TEST(TpccTransactions, OneWarehouseHasNoOther) {
  Shop shop(workload_of(1));
  shop.run(5'000, [&](const Transaction&) {
    for (const Touch& touch : shop.of(Table::stock)) EXPECT_EQ(shop.see.stock(touch).first, 0U);
  });
}

TEST(TpccTransactions, OrdersAreDeliveredOnceInTheirOrderToWhoHasOrdered) {
  Shop shop(workload_of(1));
  std::vector<std::uint32_t> delivered(kDistricts, kDelivered);
  std::uint32_t made_and_delivered = 0;
  shop.run(60'000, [&](const Transaction& t) {
    if (t.kind != Kind::delivery) return;
    const auto customers = shop.of(Table::customer);
    const auto orders = shop.of(Table::orders);
    const auto lines = shop.of(Table::order_line);
    ASSERT_EQ(orders.size(), customers.size());
    ASSERT_EQ(orders.size(), lines.size());
    EXPECT_EQ(orders.size(), shop.of(Table::new_order).size());
    for (std::size_t i = 0; i < orders.size(); ++i) {
      const auto [district, number] = shop.order(orders[i]);
      EXPECT_EQ(number, delivered[district]++);
      EXPECT_LT(number, shop.next[district]);
      EXPECT_EQ(shop.see.customer(customers[i]).first, district);
      const auto made = shop.orders.find(orders[i].page);
      if (made == shop.orders.end()) continue;
      ++made_and_delivered;
      EXPECT_EQ(shop.see.customer(customers[i]).second, made->second.customer);
    }
    for (const Touch& touch : t.touches) EXPECT_NE(touch.access, Access::create);
  });
  EXPECT_GT(made_and_delivered, 1000U);
}

TEST(TpccTransactions, StockLevelLooksAtTheItemsOfTheLastTwentyOrders) {
  Shop shop(workload_of(1));
  int complete = 0;
  shop.run(20'000, [&](const Transaction& t) {
    if (t.kind != Kind::stock_level) return;
    const std::uint32_t district = shop.see.district(shop.of(Table::district).at(0));
    std::multiset<std::uint32_t> looked_at;
    for (const Touch& touch : shop.of(Table::stock)) {
      looked_at.insert(shop.see.stock(touch).second);
      EXPECT_EQ(touch.access, Access::read);
    }
    EXPECT_EQ(shop.of(Table::order_line).size(), 20U);
    const std::uint32_t end = shop.next[district];
    if (end < kCustomers + 20) return;  // some of them were loaded
    std::multiset<std::uint32_t> wanted;
    for (std::uint32_t number = end - 20; number < end; ++number) {
      const SeenOrder& order = shop.orders.at(shop.page_of.at({district, number}));
      wanted.insert(order.items.begin(), order.items.end());
    }
    EXPECT_EQ(looked_at, wanted);
    ++complete;
  });
  EXPECT_GT(complete, 300);
}

TEST(TpccTransactions, OrderStatusReadsTheLinesOfOneOrder) {
  Shop shop(workload_of(1));
  int seen = 0;
  shop.run(20'000, [&](const Transaction& t) {
    if (t.kind != Kind::order_status) return;
    ++seen;
    for (const Touch& touch : t.touches) EXPECT_EQ(touch.access, Access::read);
    EXPECT_EQ(shop.of(Table::order_line).size(), 1U);
    const Touch row = shop.of(Table::orders).back();
    ASSERT_TRUE(shop.see.is_order_row(row));
    const auto [district, number] = shop.order(row);
    EXPECT_LT(number, shop.next[district]);
    EXPECT_EQ(shop.see.customer(shop.of(Table::customer).back()).first, district);
  });
  EXPECT_GT(seen, 500);
}

// Clause 2.1.6 for customers, enumerated, before its constant is added.
std::vector<double> nurand_shares(std::uint32_t a, std::uint32_t values) {
  std::vector<double> shares(values, 0.0);
  const double each = 1.0 / (static_cast<double>(a + 1) * values);
  for (std::uint32_t high = 0; high <= a; ++high) {
    for (std::uint32_t low = 1; low <= values; ++low) shares[(high | low) % values] += each;
  }
  return shares;
}

double chi_square(const std::vector<double>& shares, const std::vector<int>& drawn,
                  std::uint32_t constant, double all) {
  double sum = 0;
  double few_wanted = 0;
  double few_drawn = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double wanted = shares[i] * all;
    const double found = drawn[(i + constant) % drawn.size()];
    if (wanted < 5) {
      few_wanted += wanted;
      few_drawn += found;
    } else {
      sum += (found - wanted) * (found - wanted) / wanted;
    }
  }
  return sum + (few_drawn - few_wanted) * (few_drawn - few_wanted) / std::max(few_wanted, 1.0);
}

TEST(TpccTransactions, CustomersAreAsSkewedAsTheStandardSays) {
  Shop shop(workload_of(1));
  std::vector<int> drawn(kCustomers, 0);
  double all = 0;
  shop.run(150'000, [&](const Transaction& t) {
    if (t.kind != Kind::new_order) return;
    ++drawn[shop.see.customer(shop.of(Table::customer).at(0)).second];
    ++all;
  });
  const std::vector<double> shares = nurand_shares(1023, kCustomers);
  double best = 1e300;
  for (std::uint32_t constant = 0; constant <= 1023; ++constant) {
    best = std::min(best, chi_square(shares, drawn, constant, all));
  }
  // 3000 degrees of freedom at most: six standard deviations.
  EXPECT_LT(best, 3000 + 6 * 77.5);
  EXPECT_GT(chi_square(std::vector<double>(kCustomers, 1.0 / kCustomers), drawn, 0, all), 10'000);
}

TEST(TpccTransactions, AFewItemsAreOrderedMostly) {
  Shop shop(workload_of(1));
  std::map<std::uint32_t, int> drawn;
  double all = 0;
  shop.run(60'000, [&](const Transaction& t) {
    if (t.kind != Kind::new_order) return;
    for (const Touch& touch : shop.of(Table::item)) {
      ++drawn[shop.see.item(touch)];
      ++all;
    }
  });
  std::vector<int> counts;
  for (const auto& [item, n] : drawn) counts.push_back(n);
  std::ranges::sort(counts, std::greater<>());
  counts.resize(kItems, 0);
  double most = 0;
  for (std::size_t i = 0; i < kItems / 10; ++i) most += counts[i];
  // A direct draw of as many values.
  Prng random(7);
  std::vector<int> direct(kItems, 0);
  for (double i = 0; i < all; ++i) {
    const auto value = random.below(8192) | (random.below(kItems) + 1);
    ++direct[value % kItems];
  }
  std::ranges::sort(direct, std::greater<>());
  double wanted = 0;
  for (std::size_t i = 0; i < kItems / 10; ++i) wanted += direct[i];
  EXPECT_NEAR(most / all, wanted / all, 0.01);
  EXPECT_GT(most / all, 0.3);
}

TEST(TpccTransactions, UsersHaveUndoPagesOfTheirOwn) {
  const WorkloadParameters p = workload_of(1);
  Workload workload(p);
  Transaction t;
  std::array<std::set<PageId>, 4> pages;
  for (int i = 0; i < 8'000; ++i) {
    const std::uint32_t user = static_cast<std::uint32_t>(i) % 4;
    workload.next(user, t);
    bool changes = false;
    bool undo = false;
    for (const Touch& touch : t.touches) {
      if (workload.tables().table_of(touch.page) == Table::undo) {
        undo = true;
        EXPECT_EQ(touch.access, Access::write);
        pages[user].insert(touch.page);
      } else {
        changes = changes || touch.access != Access::read;
      }
    }
    EXPECT_EQ(changes, undo);
  }
  std::set<PageId> all;
  for (const auto& of : pages) {
    EXPECT_EQ(of.size(), 8U) << "one after the other, round and round";
    all.insert(of.begin(), of.end());
  }
  EXPECT_EQ(all.size(), 32U);
}

// A page is one byte here, so that as many are touched as there are records' bytes, and the next.
TEST(TpccTransactions, UndoLogsGrowWithTheRows) {
  WorkloadParameters p = workload_of(2);
  p.page_bytes = 1;
  p.undo_pages = 4 * 1'000'000;
  Workload workload(p);
  const Reader see(workload);
  Transaction t;
  const auto changed = [&](Table table) {
    return std::ranges::count_if(t.touches, [&](const Touch& touch) {
      return see.is(touch, table) && touch.access != Access::read;
    });
  };
  std::array<int, kKinds> seen{};
  for (int i = 0; i < 3'000; ++i) {
    workload.next(0, t);
    ++seen[static_cast<std::size_t>(t.kind)];
    const auto lines = std::ranges::count_if(
        t.touches, [&](const Touch& touch) { return see.is(touch, Table::item); });
    const auto undo = changed(Table::undo);
    switch (t.kind) {
      case Kind::new_order:  // district and stock; order, new order and lines
        EXPECT_EQ(undo, 1 + 100 * (1 + lines) + 30 * (2 + lines));
        break;
      case Kind::payment:  // warehouse, district, customer; history
        EXPECT_EQ(undo, 1 + 100 * 3 + 30);
        break;
      case Kind::delivery: {  // of ten orders three rows, and five to fifteen lines
        const auto rows = (undo - 1) / 100;
        EXPECT_EQ(undo, 1 + 100 * rows);
        EXPECT_GT(rows, 10 * (3 + 5));
        EXPECT_LT(rows, 10 * (3 + 15));
        break;
      }
      default:
        EXPECT_EQ(undo, 0);
    }
    if (HasFailure()) return;
  }
  for (const int n : seen) EXPECT_GT(n, 0);
}

// A page is made before anybody reads it, and once.
TEST(TpccTransactions, PagesThatDidNotExistAreCreatedFirst) {
  WorkloadParameters p = workload_of(2);
  p.rows = usual();
  Workload workload(p);
  const PageId loaded = workload.tables().loaded_pages();
  Transaction t;
  std::set<PageId> made;
  for (int i = 0; i < 60'000; ++i) {
    workload.next(0, t);
    for (const Touch& touch : t.touches) {
      EXPECT_EQ(touch.access == Access::read, touch.redo_bytes == 0);
      if (touch.page < loaded) {
        EXPECT_NE(touch.access, Access::create);
      } else if (touch.access == Access::create) {
        EXPECT_TRUE(made.insert(touch.page).second);
      } else {
        EXPECT_TRUE(made.contains(touch.page)) << touch.page;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(made.size(), 100U);
  EXPECT_EQ(made.size(), workload.tables().pages() - loaded);
}

TEST(TpccTransactions, TheSeedDecides) {
  const auto touches = [](std::uint64_t seed) {
    Workload workload(workload_of(2, seed));
    Transaction t;
    std::vector<PageId> pages;
    for (std::uint32_t i = 0; i < 300; ++i) {
      workload.next(i % 4, t);
      for (const Touch& touch : t.touches) pages.push_back(touch.page);
    }
    return pages;
  };
  EXPECT_EQ(touches(1), touches(1));
  EXPECT_NE(touches(1), touches(2));
}

TEST(TpccTransactions, NobodyIsNoUser) {
  WorkloadParameters p = workload_of(1);
  p.users = 0;
  EXPECT_THROW(Workload{p}, OperatingError);
}

}  // namespace test_tpcc
}  // namespace flashlab::dbms::tpcc
