"""YAML that people write: it is read, or refused with one kind of error."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """What a text says. Raises yaml.YAMLError for whatever is none.

    PyYAML itself lets through what its constructors raise (a month 99, a number of 5,000 digits, an
    unknown `!!int`), and has no bound for nesting.
    """
    try:
        return yaml.safe_load(text)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error
