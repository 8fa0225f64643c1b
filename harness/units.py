"""Human units, parsed once at the edge: everywhere else numbers carry their unit in their name."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from harness.errors import BadParameter

_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_RATES: Final = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
_TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LARGEST: Final = 2**63 - 1
"""Of a size or time: the kernel and the core count them in 64 bits with a sign."""

_NUMBER: Final = re.compile(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z/]*)\s*$")


def parse_bytes(text: object) -> int:
    """Bytes of a text such as '4 KiB' or '250 GB'. Raises BadParameter without a unit."""
    return _parse(text, _BYTES, "size", "4 KiB")


def parse_size_option(text: str) -> int:
    """Bytes of a text as people type it: '8G' is '8 GiB', '4096' is in bytes."""
    match = re.match(r"^\s*([0-9]+)\s*([kKMGT]?)\s*$", text)
    if match is None:
        return parse_bytes(text)
    number, unit = match.groups()
    return parse_bytes(f"{number} {unit.upper()}iB" if unit else f"{number} B")


def parse_rate(text: object) -> int:
    """Bytes per second of a text such as '125 MB/s'. Raises BadParameter without a unit."""
    return _parse(text, _RATES, "rate", "125 MB/s")


def parse_time(text: object) -> int:
    """Nanoseconds of a text such as '8.5 ms'. Raises BadParameter without a unit."""
    return _parse(text, _TIMES, "time", "8.5 ms")


def parse_rpm(text: object) -> int:
    """Revolutions per minute of a text such as '7200 rpm'. Raises BadParameter without a unit."""
    return _parse(text, {"rpm": 1}, "rotation", "7200 rpm")


def parse_count(text: object) -> int:
    """A plain whole number. Raises BadParameter for anything else."""
    if isinstance(text, bool) or not isinstance(text, int):
        raise BadParameter(f"{text!r} is not a whole number")
    return text


def _parse(text: object, units: dict[str, int], what: str, example: str) -> int:
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None or not match.group(2):
        raise BadParameter(f"{text!r} is not a {what} with its unit; write it like '{example}'")
    number, unit = match.groups()
    if unit not in units:
        raise BadParameter(f"{text!r}: unknown unit {unit!r}; known: {', '.join(units)}")
    value = Decimal(number.replace("_", "")) * units[unit]
    if value > _LARGEST:
        raise BadParameter(f"{text!r} is too large: at most {_LARGEST} of the smallest unit")
    if value != int(value):
        raise BadParameter(f"{text!r} is not a whole number of the smallest unit")
    return int(value)


def format_bytes(n_bytes: float) -> str:
    """'4 KiB', '16 MiB', '250 GB': the shortest exact text, or the nearest with three digits."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if n_bytes >= _BYTES[unit]:
            return f"{n_bytes / _BYTES[unit]:.4g} {unit}"
    return f"{n_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """'35 s', '6 min 05 s', '2 h 03 min': for people, not for files."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
