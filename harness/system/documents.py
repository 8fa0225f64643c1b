"""YAML that people write: it is read, or refused with one kind of error."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """What a text says. Raises yaml.YAMLError for whatever is none.

    PyYAML itself lets through what its constructors raise (a month 99, a number of 5,000 digits, an
    unknown `!!int`), and has no bound for nesting. A text that was read is not parsed again: a run
    reads each profile once a point. (libyaml's loader is no way to be quick: nested deeply enough,
    a text ends the process.)
    """
    try:
        return deepcopy(_parsed(text))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error


@lru_cache(maxsize=128)
def _parsed(text: str) -> Any:
    return yaml.safe_load(text)
