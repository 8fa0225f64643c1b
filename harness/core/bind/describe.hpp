// What Python makes of descriptions (base/describe.hpp): constructors from keywords, lists of their
// fields, dictionaries of counters.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/describe.hpp"
#include "bind/convert.hpp"

namespace flashlab::bind {

// How a member's value looks in Python.
template <class T>
struct InPython {
  using Type = T;
  static T from(Type value) { return value; }
  static nb::object to(const T& value) { return nb::cast(value); }
  static std::string type() {
    if constexpr (std::is_same_v<T, bool>) return "bool";
    if constexpr (std::is_integral_v<T>) return "int";
    if constexpr (std::is_same_v<T, double>) return "float";
    if constexpr (std::is_same_v<T, std::string>) return "str";
    if constexpr (!std::is_arithmetic_v<T> && !std::is_same_v<T, std::string>) {
      return nb::cast<std::string>(nb::type<T>().attr("__name__"));
    }
  }
};
template <class Tag>
struct InPython<Quantity<Tag>> {
  using Type = std::int64_t;
  static Quantity<Tag> from(Type value) { return Quantity<Tag>{value}; }
  static nb::object to(Quantity<Tag> value) { return nb::cast(value.count()); }
  static std::string type() { return "int"; }
};
template <class T>
struct InPython<std::vector<T>> {
  using Type = std::vector<T>;
  static Type from(Type values) { return values; }
  static nb::object to(const std::vector<T>&) { return nb::tuple(); }
  static std::string type() { return "collections.abc.Sequence[" + InPython<T>::type() + "]"; }
};
template <>
struct InPython<flash::NamedRange> {
  static std::string type() { return "tuple[str, int, int, int]"; }
};
template <>
struct InPython<std::vector<flash::NamedRange>> {
  using Type = std::vector<RangeTuple>;
  static std::vector<flash::NamedRange> from(const Type& ranges) { return ranges_from(ranges); }
  static nb::object to(const std::vector<flash::NamedRange>&) { return nb::tuple(); }
  static std::string type() {
    return "collections.abc.Sequence[" + InPython<flash::NamedRange>::type() + "]";
  }
};
template <class T>
struct InPython<std::optional<T>> {
  using Type = typename InPython<T>::Type;
  static std::optional<T> from(Type value) { return InPython<T>::from(value); }
  static nb::object to(const std::optional<T>& value) {
    return value ? InPython<T>::to(*value) : nb::none();
  }
  static std::string type() { return InPython<T>::type() + " | None"; }
};

// Fills a described struct from keywords, each taken once: what is missing and what is left over is
// an error that names it.
class KeywordReader {
 public:
  KeywordReader(std::string owner, const nb::dict& given) : owner_(std::move(owner)) {
    for (const auto& [key, value] : given) left_[key] = value;
  }

  template <class T>
  void required(const char* name, T& member, const char* /*doc*/) {
    require(left_.contains(name), owner_ + ": " + name + " is missing");
    member = taken<T>(name);
  }
  template <class T>
  void optional(const char* name, T& member, const char* /*doc*/) {
    if (left_.contains(name)) member = taken<T>(name);
  }
  template <class P>
  void group(const char* name, P& part, const char* /*doc*/) {
    nb::dict given;
    required(name, given, "");
    KeywordReader reader(name, given);
    describe(reader, part);
    reader.finish();
  }
  void beside_profile() {}
  void finish() const {
    for (const auto& [key, value] : left_) {
      throw OperatingError(ErrorKind::bad_parameter,
                           owner_ + ": unknown argument " + nb::cast<std::string>(key));
    }
  }

 private:
  template <class T>
  T taken(const char* name) {
    using In = InPython<T>;
    const nb::object given = left_[name];
    nb::del(left_[name]);
    typename In::Type value;
    try {
      value = nb::cast<typename In::Type>(given);
    } catch (const nb::cast_error&) {
      throw OperatingError(ErrorKind::bad_parameter,
                           owner_ + ": " + name + " has the wrong type or is out of range");
    }
    return In::from(std::move(value));
  }

  std::string owner_;
  nb::dict left_;
};

// A line of a description, as Python sees it.
struct Field {
  std::string keyword;
  std::string name;  // without the unit
  std::string kind;
  std::string type;
  std::string doc;
  bool required = false;
  bool in_profile = false;
  nb::object initial;
};

class FieldLister {
 public:
  template <class T>
  void required(const char* name, T& /*member*/, const char* doc) {
    add<T>(name, doc, true, nb::none());
  }
  template <class T>
  void optional(const char* name, T& member, const char* doc) {
    add<T>(name, doc, false, InPython<T>::to(member));
  }
  template <class P>
  void group(const char* name, P& /*part*/, const char* doc) {
    fields_.push_back({name, name, "group", "dict[str, int]", doc, true, in_profile_, nb::none()});
  }
  void beside_profile() { in_profile_ = false; }
  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }

 private:
  template <class T>
  void add(std::string_view keyword, const char* doc, bool required, nb::object initial) {
    const Unit unit = unit_of<T>(keyword);
    FLASHLAB_CHECK(keyword.ends_with(unit.suffix));
    const std::string_view name = keyword.substr(0, keyword.size() - unit.suffix.size());
    fields_.push_back({std::string(keyword), std::string(name), std::string(unit.kind),
                       InPython<T>::type(), doc, required, in_profile_, std::move(initial)});
  }

  bool in_profile_ = true;
  std::vector<Field> fields_;
};

template <class P>
std::vector<Field> fields_of() {
  P parameters{};
  FieldLister lister;
  describe(lister, parameters);
  return lister.fields();
}

std::string signature_of(const std::vector<Field>& fields);
std::string doc_of(const std::vector<Field>& fields);
void bind_fields(nb::module_& m);

// The class `name`: a constructor that takes the described keywords, and a list of them. The
// classes of its parts must be there.
template <class P>
void bind_parameters(nb::module_& m, const char* name, const char* doc) {
  nb::class_<P> bound(m, name, doc);
  const std::vector<Field> fields = fields_of<P>();
  bound
      .def(
          "__init__",
          [name](P* self, const nb::kwargs& given) {
            P parameters{};
            KeywordReader reader(name, given);
            describe(reader, parameters);
            reader.finish();
            new (self) P(std::move(parameters));
          },
          nb::sig(signature_of(fields).c_str()), doc_of(fields).c_str())
      .def_static("fields", &fields_of<P>, "The keywords of the constructor, in their order.");
}

// Counters by name, into a dictionary.
class Counts {
 public:
  explicit Counts(nb::dict& out) : out_(out) {}
  template <class T>
  void operator()(const char* name, const T& value) {
    out_[name] = value;
  }
  template <class Tag>
  void operator()(const char* name, Quantity<Tag> value) {
    out_[name] = value.count();
  }
  template <class T, std::size_t N>
  void operator()(const char* name, const std::array<T, N>& values) {
    nb::list out;
    for (const T& value : values) out.append(value);
    out_[name] = out;
  }

 private:
  nb::dict& out_;
};

template <class C>
nb::dict counts_of(const C& counters) {
  nb::dict out;
  Counts into(out);
  count(into, counters);
  return out;
}

}  // namespace flashlab::bind
