"""Fields of the parameters of several experiments: texts that are checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

from pydantic import BeforeValidator

from harness.dbms import page_writes
from harness.errors import UnknownName
from harness.units import parse_bytes


def checked(check: Callable[[Any], object]) -> BeforeValidator:
    """A field whose value passes `check`, which raises what is wrong with it."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return BeforeValidator(validate)


def one_of(what: str, known: Collection[str]) -> BeforeValidator:
    """A field that has one of these names. Raises UnknownName."""

    def check(name: Any) -> None:
        if name not in known:
            raise UnknownName(what, str(name), known)

    return checked(check)


SizeText = Annotated[str, checked(parse_bytes)]
"""A size with its unit."""

Mode = Annotated[str, checked(lambda name: page_writes.find(str(name)))]
"""One of dbms.page_writes.MODES."""
