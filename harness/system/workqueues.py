"""Which processors the kernel's own work may run on: that of no processor in particular.

A loop device's requests are such work. It is one setting for the whole machine, so whoever changes
it notes in a file what it was, and with the file it can be put back by anybody, after a kill, too:

    workqueues.bind(note, processor, others)
    ...
    workqueues.put_back(note, others)

`others` are the files in which others may have noted the same: who finds it changed takes over what
was before, and the last to end puts that back. All is done under a lock on the setting itself. See
Linux, Documentation/core-api/workqueue.rst.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from harness.errors import TargetError

NOTE: Final = "processors"
"""What the file is called in a live device's folder."""

_SETTING: Final = Path("/sys/devices/virtual/workqueue/cpumask")
_GROUP: Final = 8
"""Digits between two commas of the kernel's."""
_MASK: Final = re.compile(r"[1-9a-f][0-9a-f]{0,4095}")


def available() -> bool:
    """Whether this machine lets us change it."""
    try:
        with _SETTING.open("r+"):
            return True
    except OSError:
        return False


def bind(note: Path, processor: int, others: Iterable[Path]) -> None:
    """To one processor. What was before is in `note`, a file that is made. Raises TargetError."""
    wanted = f"{1 << processor:x}"
    with _locked():
        now = _read()
        notes = filter(None, map(_noted, others))
        before = next((was for was, chosen in notes if chosen == now), now)
        note.write_text(json.dumps([before, wanted]))
        _write(wanted)


def put_back(note: Path, others: Iterable[Path]) -> bool:
    """Puts back what was before, unless one of the others wants it as it is, or somebody else has
    changed it since. The note goes then. Says whether it was put back. Raises TargetError.
    """
    if not note.exists():
        return False
    with _locked():
        before = _to_put_back(note, others)
        if before is not None:
            _write(before)
        note.unlink(missing_ok=True)  # last: nothing else knows what was before
    return before is not None


def _to_put_back(note: Path, others: Iterable[Path]) -> str | None:
    """What was before, if it is to be again."""
    found, now = _noted(note), _read()
    if found is None or found[1] != now:
        return None
    is_wanted = any(other[1] == now for other in filter(None, map(_noted, others)))
    return None if is_wanted else found[0]


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with _SETTING.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _noted(note: Path) -> tuple[str, str] | None:
    """Before, and as it was set; None for what is no note, or was cut off: nothing was set then."""
    try:
        before, chosen = json.loads(note.read_text())
        whole = all(_MASK.fullmatch(mask) for mask in (before, chosen))
    except (OSError, ValueError, TypeError):
        return None
    return (before, chosen) if whole else None


def _read() -> str:
    """In hexadecimal, without commas: bit 0 is the first processor."""
    return f"{int(_SETTING.read_text().strip().replace(',', ''), 16):x}"


def _write(mask: str) -> None:
    ends = range(len(mask), 0, -_GROUP)
    groups = [mask[max(end - _GROUP, 0) : end] for end in ends]
    try:
        _SETTING.write_text(",".join(reversed(groups)))
    except OSError as error:
        raise TargetError(
            f"{_SETTING}: the kernel does not take {mask}: {error.strerror}"
        ) from error
