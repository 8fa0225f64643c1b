#include "bind/describe.hpp"

namespace flashlab::bind {

std::string signature_of(const std::vector<Field>& fields) {
  std::string out = "def __init__(self, *";
  for (const Field& field : fields) {
    out += ", " + field.keyword + ": " + field.type;
    if (!field.required) out += " = " + nb::cast<std::string>(nb::repr(field.initial));
  }
  return out + ") -> None";
}

std::string doc_of(const std::vector<Field>& fields) {
  std::string out = "Raises BadParameter for a keyword that is missing, unknown or wrong.\n";
  for (const Field& field : fields) {
    if (!field.doc.empty()) out += "\n" + field.keyword + ": " + field.doc;
  }
  return out;
}

void bind_fields(nb::module_& m) {
  nb::class_<Field>(m, "Field", "A keyword of a class of parameters; see core/base/describe.hpp.")
      .def_ro("keyword", &Field::keyword, "With the unit at its end.")
      .def_ro("name", &Field::name, "Without it, as in a profile.")
      .def_ro("kind", &Field::kind,
              "size, rate, time, rotation, count, ratio, number, name, switch, group or other.")
      .def_ro("type", &Field::type, "Of the argument, as in the stub.")
      .def_ro("doc", &Field::doc)
      .def_ro("required", &Field::required)
      .def_ro("in_profile", &Field::in_profile, "False: given by whoever builds the thing.")
      .def_prop_ro(
          "default", [](const Field& field) { return field.initial; },
          "None where it is required, too.");
}

}  // namespace flashlab::bind
