"""What a drive has counted of its wear, and what two readings say of the time between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.drives.trim_log import TrimLog
from harness.errors import InvalidRun

COUNTS: Final = {
    "host_written_bytes": "written by the host",
    "media_written_bytes": "programmed into flash, for whatever reason",
    "erased_bytes": "flash erased",
    "host_pages": "flash pages programmed for the host",
    "media_pages": "flash pages programmed, for whatever reason",
    "erase_cycles": "erases of a block, on average over the drive",
}
"""What may be counted. `media_` and `host_` of one unit are of the same scope and time."""

_PAIRS: Final = (
    ("media_pages", "host_pages"),
    ("media_written_bytes", "host_written_bytes"),
)
"""Whose ratio is the write amplification; the first of them that a drive has."""

_COARSEST_RATIO: Final = 0.05
"""More than that the counters' rounding may not move a ratio; claims are judged as closely."""


@dataclass(frozen=True)
class Count:
    """A number that a drive keeps, in the unit of its name, and never lowers.

    `step`: the least by which it rises, so what the drive may have rounded. `source`: where it
    stands. `estimated`: a number of another kind, made into this one; `source` says how.
    """

    value: int
    step: int
    source: str
    estimated: bool = False


@dataclass(frozen=True)
class Drive:
    """Whose counters they are."""

    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, kw_only=True)
class Wear:
    """One reading of a drive.

    `counts`: by the names of COUNTS. `unsaid`: of the names without a count, why the drive cannot
    say. `used_ratio`: of the endurance, by the drive's own estimate; may exceed 1. `trim`: the
    statistics of a firmware with delayed TRIM.
    """

    drive: Drive
    counts: Mapping[str, Count] = field(default_factory=dict)
    unsaid: Mapping[str, str] = field(default_factory=dict)
    used_ratio: float | None = None
    temperature_c: int | None = None
    trim: TrimLog | None = None

    def __post_init__(self) -> None:
        assert set(self.counts) | set(self.unsaid) == set(COUNTS), "said, or said why not"
        assert not set(self.counts) & set(self.unsaid)

    @property
    def host_written_bytes(self) -> int | None:
        """Since the drive was made. None: it cannot say."""
        return self._value("host_written_bytes")

    @property
    def media_written_bytes(self) -> int | None:
        """Since the drive was made. None: it cannot say."""
        return self._value("media_written_bytes")

    @property
    def erased_bytes(self) -> int | None:
        """Since the drive was made. None: it cannot say."""
        return self._value("erased_bytes")

    def written_bytes(self, coarsest_bytes: int) -> tuple[int, int] | None:
        """By the host, and into flash, since the drive was made; None if either is not counted, is
        an estimate, or is counted in steps of more than `coarsest_bytes`.
        """
        pair = [self.counts.get(name) for name in ("host_written_bytes", "media_written_bytes")]
        fine = [c for c in pair if c and not c.estimated and c.step <= coarsest_bytes]
        return (fine[0].value, fine[1].value) if len(fine) == len(pair) else None

    def _value(self, name: str) -> int | None:
        return self.counts[name].value if name in self.counts else None


@dataclass(frozen=True)
class Change:
    """What was counted between two readings.

    `counts`: by the names of COUNTS. `waf`: write amplification, media over host; None if it cannot
    be said. `waf_low` and `waf_high`: what the counters' steps leave possible. `note`: why there is
    no ratio, or where it is from.
    """

    counts: Mapping[str, int]
    waf: float | None
    waf_low: float | None
    waf_high: float | None
    note: str

    @property
    def waf_text(self) -> str:
        """The ratio with its bounds and origin, or why there is none: for people."""
        if self.waf is None or self.waf_low is None or self.waf_high is None:
            return f"not known: {self.note}"
        return f"{self.waf:.3g} ({self.waf_low:.3g} to {self.waf_high:.3g}; {self.note})"


def between(before: Wear, after: Wear) -> Change:
    """What a drive has counted between two readings.

    Raises InvalidRun if it is not the same drive with the same firmware, if a counter ran
    backwards, or if a count comes from elsewhere than before.
    """
    _check_same_drive(before.drive, after.drive)
    both = [name for name in after.counts if name in before.counts]
    for name in both:
        _check_count(name, before.counts[name], after.counts[name])
    changed = {name: after.counts[name].value - before.counts[name].value for name in both}
    unsaid = {name: f"{why} (in the first reading)" for name, why in before.unsaid.items()}
    return _change(changed, after.counts, {**unsaid, **after.unsaid})


def since_new(wear: Wear) -> Change:
    """What a drive has counted in its whole life."""
    values = {name: count.value for name, count in wear.counts.items()}
    return _change(values, wear.counts, wear.unsaid)


def _check_same_drive(before: Drive, after: Drive) -> None:
    for name in ("serial", "model", "firmware"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            raise InvalidRun(
                f"the drive's {name} was {was!r} and is {now!r}: its counters cannot be compared; "
                "measure again on one drive"
            )


def _check_count(name: str, before: Count, after: Count) -> None:
    if (before.source, before.step) != (after.source, after.step):
        raise InvalidRun(
            f"{name} was read from {before.source}, then from {after.source}: measure again"
        )
    if after.value < before.value:
        raise InvalidRun(
            f"{name} ran backwards, from {before.value} to {after.value} ({after.source}): the "
            "drive has reset its counters; measure again"
        )


def _change(
    changed: Mapping[str, int], counts: Mapping[str, Count], unsaid: Mapping[str, str]
) -> Change:
    for media, host in _PAIRS:
        if media in changed and host in changed:
            return _ratio(changed, counts[media], counts[host], media, host)
    why = unsaid.get("media_written_bytes") or unsaid["host_written_bytes"]
    return Change(changed, None, None, None, why)


def _ratio(
    changed: Mapping[str, int], media: Count, host: Count, media_name: str, host_name: str
) -> Change:
    """The ratio of two differences, each of which may be off by a step."""
    more, written = changed[media_name], changed[host_name]
    if _coarseness(more, media.step) + _coarseness(written, host.step) > _COARSEST_RATIO:
        return Change(changed, None, None, None, _too_little(more, written, media, host))
    low = (more - media.step) / (written + host.step)
    high = (more + media.step) / (written - host.step)
    sources = media.source if media.source == host.source else f"{media.source}; {host.source}"
    kind = "estimate, " if media.estimated or host.estimated else ""
    return Change(changed, more / written, low, high, kind + sources)


def _coarseness(value: int, step: int) -> float:
    return step / value if value else float("inf")


def _too_little(more: int, written: int, media: Count, host: Count) -> str:
    """In the unit of the two, which are bytes or pages."""
    least = int((host.step + media.step) / _COARSEST_RATIO)
    return (
        f"host {written} and media {more} were counted, in steps of {host.step} and {media.step}: "
        f"too little for a ratio; write {least} or more in between"
    )
