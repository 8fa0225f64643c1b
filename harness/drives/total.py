"""What a plan costs in all: bytes, time and wear. The last line of every plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.drives.targets import Step
from harness.units import format_bytes, format_seconds


def of_plans(plans: Iterable[tuple[str, int, Sequence[Step]]]) -> str:
    """Of plans one after the other: each drive's name, its size in bytes, and its steps.

    Wear is what is written over the drive's size, as the host writes it: what the drive's own
    collection adds is not known before.
    """
    written: dict[str, int] = {}
    sizes: dict[str, int] = {}
    time_s = 0.0
    for name, size_bytes, steps in plans:
        written[name] = written.get(name, 0) + sum(step.written_bytes for step in steps)
        sizes[name] = size_bytes
        time_s += sum(step.expected_s for step in steps)
    wear = ", ".join(
        f"{name} is written {n_bytes / sizes[name]:.2g} times over"
        for name, n_bytes in written.items()
        if n_bytes
    )
    time = format_seconds(time_s) if time_s else "at once"
    return (
        f"in all: {format_bytes(sum(written.values()))} written, {time}; "
        f"wear: {wear or 'nothing is written'}"
    )
