#include "dbms/tpcc/transactions.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::dbms::tpcc {

namespace {

// Clause 5.2.3's least shares, the rest are new orders; of 100.
constexpr std::array<std::uint32_t, kKinds> kMix{45, 43, 4, 4, 4};
constexpr std::uint32_t kLeastLines = 5;
constexpr std::uint32_t kMostLines = 15;
constexpr std::uint32_t kNameA = 255;
constexpr std::uint32_t kCustomerA = 1023;
constexpr std::uint32_t kItemA = 8191;
constexpr std::uint32_t kNames = 1000;
constexpr std::uint32_t kCustomersOfName = kCustomers / kNames;
constexpr std::uint32_t kRecentOrders = 20;  // clause 2.8.2.2
// Logged for a pointer, an entry of a parent, a bit of a file's: some 20 to 40 bytes each.
constexpr std::uint16_t kTreeRedoBytes = 30;

// Clause 2.1.6, from 0 on.
std::uint32_t nurand(Prng& random, std::uint32_t a, std::uint32_t values, std::uint32_t constant) {
  const auto high = static_cast<std::uint32_t>(random.below(a + 1));
  const auto low = static_cast<std::uint32_t>(random.below(values)) + 1;
  return ((high | low) + constant) % values;
}

}  // namespace

Workload::Workload(const WorkloadParameters& parameters)
    : parameters_(parameters),
      tables_(parameters.warehouses, parameters.rows, parameters.undo_pages, parameters.most_pages,
              parameters.extent_pages),
      random_(parameters.seed),
      customer_constant_(below(kCustomerA + 1)),
      item_constant_(below(kItemA + 1)),
      name_constant_(below(kNameA + 1)),
      districts_(tables_.districts()),
      undo_bytes_(parameters.users) {
  require(parameters.users >= 1, "TPC-C: at least one connection");
}

void Workload::next(std::uint32_t user, Transaction& out) {
  out.touches.clear();
  out.updated_rows = out.inserted_rows = 0;
  std::uint32_t card = below(100);
  std::size_t kind = 0;
  while (card >= kMix[kind]) card -= kMix[kind++];
  out.kind = static_cast<Kind>(kind);
  switch (out.kind) {
    case Kind::new_order:
      new_order(out);
      break;
    case Kind::payment:
      payment(out);
      break;
    case Kind::order_status:
      order_status(out);
      break;
    case Kind::delivery:
      delivery(out);
      break;
    case Kind::stock_level:
      stock_level(out);
      break;
  }
  undo(out, user);
}

Workload::Order Workload::order_of(std::uint32_t district, std::uint32_t order) const {
  const std::uint64_t seed =
      mix64(parameters_.seed ^ mix64((std::uint64_t{district} << 32 | order) + 1));
  Prng random(seed);
  const auto lines =
      kLeastLines + static_cast<std::uint32_t>(random.below(kMostLines - kLeastLines + 1));
  const std::uint32_t customer = order < kCustomers
                                     ? static_cast<std::uint32_t>(random.below(kCustomers))
                                     : nurand(random, kCustomerA, kCustomers, customer_constant_);
  return {lines, customer, random.next()};
}

// Orders that were loaded have items drawn uniformly (clause 4.3.3.1).
std::uint32_t Workload::item_of(const Order& order, std::uint32_t order_number,
                                std::uint32_t line) const {
  Prng random(order.seed + line);
  if (order_number < kCustomers) return static_cast<std::uint32_t>(random.below(kItems));
  return nurand(random, kItemA, kItems, item_constant_);
}

std::uint32_t Workload::other_warehouse(std::uint32_t home) {
  if (parameters_.warehouses == 1) return home;
  const std::uint32_t drawn = below(parameters_.warehouses - 1);
  return drawn < home ? drawn : drawn + 1;
}

void Workload::touch_lines(Transaction& out, std::uint32_t district, std::uint32_t order,
                           Access access, std::uint16_t redo_bytes) {
  const Place first = tables_.order_line(district, order, 0);
  const Place last = tables_.order_line(district, order, kLinesOfOrder - 1);
  const bool is_one = first.page == last.page;
  for (const Place& place : {first, last}) {
    const auto share = static_cast<std::uint16_t>(is_one ? redo_bytes : redo_bytes / 2);
    if (access == Access::read) {
      add(out, place.page, Access::read, 0);
    } else {
      insert(out, place, share);
    }
    if (is_one) return;
  }
}

void Workload::new_order(Transaction& out) {
  const std::uint32_t w = any_warehouse();
  const std::uint32_t d = w * kDistricts + below(kDistricts);
  const std::uint32_t number = districts_[d].next_order++;
  const Order order = order_of(d, number);
  const RedoBytes& redo = parameters_.redo;
  add(out, tables_.warehouse(w), Access::read, 0);
  add(out, tables_.district(d), Access::write, redo.update);
  add(out, tables_.customer(d, order.customer), Access::read, 0);
  insert(out, tables_.order(d, number), redo.insert);
  insert(out, tables_.add_order_by_customer(d, order.customer), redo.insert);
  insert(out, tables_.new_order(d, number), redo.insert);
  for (std::uint32_t line = 0; line < order.lines; ++line) {
    const std::uint32_t item = item_of(order, number, line);
    const std::uint32_t supply = below(100) == 0 ? other_warehouse(w) : w;  // clause 2.4.1.5
    add(out, tables_.item(item), Access::read, 0);
    add(out, tables_.stock(supply, item), Access::write, redo.update);
  }
  touch_lines(out, d, number, Access::write,
              static_cast<std::uint16_t>(redo.insert_line * order.lines));
  out.updated_rows = 1 + order.lines;   // the district, stock
  out.inserted_rows = 2 + order.lines;  // the order twice, its lines
}

void Workload::insert(Transaction& out, const Place& place, std::uint16_t redo_bytes) {
  if (place.made) make(out, *place.made, redo_bytes);
  if (!place.is_new() || place.made->halved) add(out, place.page, Access::write, redo_bytes);
}

// `redo_bytes`: of the row that it is made for, if it begins with that. The rows of a half are
// logged one by one.
void Workload::make(Transaction& out, const NewPage& made, std::uint16_t redo_bytes) {
  if (made.halved) {
    add(out, *made.halved, Access::write, kTreeRedoBytes);
    redo_bytes = static_cast<std::uint16_t>(parameters_.page_bytes / 2);
  }
  add(out, made.page, Access::create, redo_bytes);
  if (made.next) add(out, *made.next, Access::tree, kTreeRedoBytes);
  add(out, made.parent, Access::tree, kTreeRedoBytes);
  add(out, made.header, Access::file, kTreeRedoBytes);
  add(out, made.inode, Access::file, kTreeRedoBytes);
}

// Clause 2.5.1.2: six of ten by name, of whom the middle one is meant. The index of names has all
// that is asked of the others (customer_by_name, and the primary key behind it): of the customers
// themselves none but that one is read.
std::uint32_t Workload::find_customer(Transaction& out, std::uint32_t district) {
  if (below(100) >= 60) return nurand(random_, kCustomerA, kCustomers, customer_constant_);
  const std::uint32_t name = nurand(random_, kNameA, kNames, name_constant_);
  add(out, tables_.customer_by_name(district, name), Access::read, 0);
  std::uint32_t found = name;  // the first customers have one name each (clause 4.3.3.1)
  for (std::uint32_t other = 1; other < kCustomersOfName; ++other) {
    const std::uint64_t place = mix64(std::uint64_t{district} << 32 | name << 2 | other);
    found = kNames + static_cast<std::uint32_t>(Prng(place).below(kCustomers - kNames));
  }
  return found;
}

void Workload::payment(Transaction& out) {
  const std::uint32_t w = any_warehouse();
  const std::uint32_t d = w * kDistricts + below(kDistricts);
  const RedoBytes& redo = parameters_.redo;
  add(out, tables_.warehouse(w), Access::write, redo.update);
  add(out, tables_.district(d), Access::write, redo.update);
  const bool is_remote = below(100) >= 85;  // clause 2.5.1.2
  const std::uint32_t of = is_remote ? other_warehouse(w) * kDistricts + below(kDistricts) : d;
  const std::uint32_t customer = find_customer(out, of);
  add(out, tables_.customer(of, customer), Access::write, redo.update);
  insert(out, tables_.next_history(), redo.insert);
  out.updated_rows = 3;
  out.inserted_rows = 1;
}

void Workload::order_status(Transaction& out) {
  const std::uint32_t d = below(tables_.districts());
  const std::uint32_t customer = find_customer(out, d);
  add(out, tables_.customer(d, customer), Access::read, 0);
  add(out, tables_.orders_by_customer(d, customer), Access::read, 0);
  const std::uint32_t order = districts_[d].next_order - 1 - below(kCustomers);
  add(out, tables_.order(d, order).page, Access::read, 0);
  touch_lines(out, d, order, Access::read, 0);
}

void Workload::delivery(Transaction& out) {
  const std::uint32_t w = any_warehouse();
  const RedoBytes& redo = parameters_.redo;
  for (std::uint32_t d = w * kDistricts; d < (w + 1) * kDistricts; ++d) {
    District& district = districts_[d];
    if (district.next_delivery == district.next_order) continue;  // clause 2.7.4.2: skipped
    const std::uint32_t number = district.next_delivery++;
    const Order order = order_of(d, number);
    add(out, tables_.new_order(d, number).page, Access::write, redo.update);
    add(out, tables_.order(d, number).page, Access::write, redo.update);
    for (const std::uint32_t line : {0U, kLinesOfOrder - 1}) {
      if (const auto made = tables_.date_line(d, number, line)) make(out, *made, 0);
    }
    touch_lines(out, d, number, Access::write,
                static_cast<std::uint16_t>(redo.update * order.lines));
    add(out, tables_.customer(d, order.customer), Access::write, redo.update);
    out.updated_rows += 3 + order.lines;  // the order twice, the customer, its lines
  }
}

void Workload::stock_level(Transaction& out) {
  const std::uint32_t d = below(tables_.districts());
  const std::uint32_t end = districts_[d].next_order;
  add(out, tables_.district(d), Access::read, 0);
  for (std::uint32_t number = end - kRecentOrders; number < end; ++number) {
    touch_lines(out, d, number, Access::read, 0);
    const Order order = order_of(d, number);
    for (std::uint32_t line = 0; line < order.lines; ++line) {
      add(out, tables_.stock(d / kDistricts, item_of(order, number, line)), Access::read, 0);
    }
  }
}

// Each user writes undo records into pages of its own, one after the other, and comes back to them
// when purge has long freed them.
void Workload::undo(Transaction& out, std::uint32_t user) {
  const std::uint64_t bytes = std::uint64_t{out.updated_rows} * parameters_.undo_bytes_per_update +
                              std::uint64_t{out.inserted_rows} * parameters_.undo_bytes_per_insert;
  if (bytes == 0) return;
  std::uint64_t& at = undo_bytes_[user];
  const std::uint64_t first = at / parameters_.page_bytes;
  at += bytes;
  const std::uint32_t each = std::max<std::uint32_t>(parameters_.undo_pages / parameters_.users, 1);
  for (std::uint64_t page = first; page <= at / parameters_.page_bytes; ++page) {
    add(out, tables_.undo(user * each + static_cast<std::uint32_t>(page % each)), Access::write,
        parameters_.redo.commit);
  }
}

}  // namespace flashlab::dbms::tpcc
