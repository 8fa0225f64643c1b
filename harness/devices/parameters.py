"""What stands in a profile: values with a unit and an origin, and groups of them.

Every value says where it comes from: `source` (a document), `prior` (common knowledge, no document
at hand) or `fitted` (to what).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model, model_validator
from pydantic import Field as SchemaField

from harness import _core
from harness.errors import BadParameter
from harness.units import parse_bytes, parse_count, parse_rate, parse_rpm, parse_time


class Strict(BaseModel):
    """A record without unknown keys, which nobody changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Provenance(Strict):
    suffix: ClassVar[str]
    source: str | None = None
    prior: str | None = None
    fitted: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        given = [name for name in ("source", "prior", "fitted") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "exactly one of source, prior, fitted must say where the value is from"
            )
        return self

    @property
    def origin(self) -> str:
        """'source', 'prior' or 'fitted'."""
        return next(name for name in ("source", "prior", "fitted") if getattr(self, name))

    @property
    def reason(self) -> str:
        """The text behind the origin."""
        return str(getattr(self, self.origin))


def validator(parse: Callable[[object], int]) -> BeforeValidator:
    """Pydantic's check of a value that is written with its unit."""

    def check(value: object) -> int:
        try:
            return parse(value)
        except BadParameter as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(check)


class Size(_Provenance):
    """Bytes."""

    suffix: ClassVar[str] = "_bytes"
    value: Annotated[int, validator(parse_bytes)]


class Rate(_Provenance):
    """Bytes per second."""

    suffix: ClassVar[str] = "_bytes_per_s"
    value: Annotated[int, validator(parse_rate)]


class Time(_Provenance):
    """Nanoseconds."""

    suffix: ClassVar[str] = "_ns"
    value: Annotated[int, validator(parse_time)]


class Rotation(_Provenance):
    """Revolutions per minute."""

    suffix: ClassVar[str] = ""
    value: Annotated[int, validator(parse_rpm)]


class Count(_Provenance):
    """A whole number."""

    suffix: ClassVar[str] = ""
    value: Annotated[int, validator(parse_count)]


class Ratio(_Provenance):
    """A plain number; 0.07 is seven percent."""

    suffix: ClassVar[str] = "_ratio"
    value: float


class Name(_Provenance):
    """A policy's name."""

    suffix: ClassVar[str] = ""
    value: str


class Switch(_Provenance):
    """On or off."""

    suffix: ClassVar[str] = ""
    value: bool


class Parameters(Strict):
    """A group of values."""

    def core_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the core's parameter class: names with units, plain values."""
        fields = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name + value.suffix: value.value for name, value in fields if value is not None}

    def with_values(self, values: Mapping[str, float]) -> Self:
        """A copy with other values of parameters that it has; their origins stay."""
        changed = {
            name: getattr(self, name).model_copy(update={"value": value})
            for name, value in values.items()
        }
        return self.model_copy(update=changed)


KINDS: Final[dict[str, type[_Provenance]]] = {
    "size": Size,
    "rate": Rate,
    "time": Time,
    "rotation": Rotation,
    "count": Count,
    "ratio": Ratio,
    "name": Name,
    "switch": Switch,
}
"""The class of each kind of parameter that the core describes."""


class CoreClass(Protocol):
    """A class of parameters of the core."""

    __name__: str

    @staticmethod
    def fields() -> list[_core.Field]: ...


def described_by(core: CoreClass, module: str, doc: str) -> type[Parameters]:
    """The group that the core's description of its parameters makes, as a class of `module`.

    Fields in the description's order. An optional one may be left out: the core's default holds.
    """
    fields: dict[str, Any] = {}
    for field in core.fields():
        if not field.in_profile:
            continue
        kind: Any = KINDS[field.kind]
        default: dict[str, Any] = {} if field.required else {"default": None}
        fields[field.name] = (
            kind if field.required else kind | None,
            SchemaField(description=field.doc, **default),
        )
    made = create_model(core.__name__, __base__=Parameters, __module__=module, **fields)
    made.__doc__ = doc
    return made
