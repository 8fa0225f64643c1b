"""What a drive programmed for whom: write amplification, apart for named ranges, and over time.

with Sampler(device.writes, interval_s=1.0) as sampler:
    ...                                     # the workload
series(sampler.samples)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Self

from harness.devices.profiles import NamedRange

REST: Final = "(rest)"
"""What lies in no range that was named."""

CoreShare = tuple[int, int, int, int]
"""A share as the core counts it, in units of the map: host, copied, padded, coalesced."""


@dataclass(frozen=True)
class Share:
    """What was written to a range, and what its data then cost on flash; all in bytes.

    `host_bytes`: programmed for the host. `copied_bytes`: by garbage collection. `padded_bytes`:
    programmed empty behind the range's data, to make it durable. `coalesced_bytes`: written by the
    host again before they were programmed, so that they never were.
    """

    host_bytes: int = 0
    copied_bytes: int = 0
    padded_bytes: int = 0
    coalesced_bytes: int = 0

    @property
    def written_bytes(self) -> int:
        """By the host, in whole units of the drive's map."""
        return self.host_bytes + self.coalesced_bytes

    @property
    def programmed_bytes(self) -> int:
        """On flash."""
        return self.host_bytes + self.copied_bytes + self.padded_bytes

    @property
    def waf(self) -> float:
        """Bytes programmed per byte that the host wrote; NaN if it wrote none."""
        return self.programmed_bytes / self.written_bytes if self.written_bytes else float("nan")

    def __add__(self, other: Share) -> Share:
        return Share(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Share) -> Share:
        return Share(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


Shares = Mapping[str, Share]
"""By the ranges' names, REST last. Ranges of one name are counted as one."""


def shares_of(ranges: Sequence[NamedRange], parts: Iterable[CoreShare], unit_bytes: int) -> Shares:
    """The shares of ranges, in their order, and of the rest, as the core counts them."""
    shares: dict[str, Share] = {}
    for name, part in zip([*(r.name for r in ranges), REST], parts, strict=True):
        share = Share(*(units * unit_bytes for units in part))
        shares[name] = shares.get(name, Share()) + share
    return shares


def since(shares: Shares, baseline: Shares) -> dict[str, Share]:
    """What has been counted since the baseline was taken.

    What the baseline knew under a name that is gone belongs to the rest since then.
    """
    found = {name: share - baseline.get(name, Share()) for name, share in shares.items()}
    for name, share in baseline.items():
        if name not in shares:
            found[REST] -= share
    return found


@dataclass(frozen=True)
class Writes:
    """What a drive has written so far, of one moment of its own time.

    `counters` are all of the device's, `shares` who the flash was programmed for.
    """

    time_ns: int
    counters: Mapping[str, int]
    shares: Shares


class Sampler:
    """Looks at a drive again and again while its `with` block runs, in a thread of its own.

    `look` gives what the drive has written so far, every `interval_s` seconds of the clock, and
    once at the begin and the end; of a drive that does not say (None) there are no samples. The
    drive's ranges must not change meanwhile. What goes wrong in the thread is raised at the end.
    """

    def __init__(self, look: Callable[[], Writes | None], interval_s: float) -> None:
        self._look = look
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write samples", daemon=True)
        self.samples: list[Writes] = []

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        if kind is not None:  # the first error is the one to tell
            return
        if self._failure is not None:
            raise self._failure
        self._sample()

    @property
    def is_running(self) -> bool:
        """Whether it still looks."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._interval_s):
                self._sample()
        except BaseException as failure:
            self._failure = failure

    def _sample(self) -> None:
        if (found := self._look()) is not None:
            self.samples.append(found)


def series(samples: Sequence[Writes]) -> dict[str, list[Any]]:
    """Samples as a measurement's series, everything since the first sample.

    `waf_time_s` (the drive's own time), `waf_written_bytes` (by the host), `waf_programmed_bytes`,
    `waf_ratio` (of both); and for each range that the last sample names `waf_NAME_written_bytes`
    (in whole units of the map: a range's bytes nobody counts), `waf_NAME_programmed_bytes`,
    `waf_NAME_ratio`, without what was moved out of an SLC cache, which belongs to nobody. A ratio
    is NaN while nothing was written.
    """
    if not samples:
        return {}
    first = samples[0]
    grown = [since(sample.shares, first.shares) for sample in samples]
    programmed = [_change(first, sample, "nand_write_bytes") for sample in samples]
    written = [_change(first, sample, "write_bytes") for sample in samples]
    found: dict[str, list[Any]] = {
        "waf_time_s": [(sample.time_ns - first.time_ns) / 1e9 for sample in samples],
        "waf_written_bytes": written,
        "waf_programmed_bytes": programmed,
        "waf_ratio": [
            on_flash / by_host if by_host else float("nan")
            for on_flash, by_host in zip(programmed, written, strict=True)
        ],
    }
    for name in samples[-1].shares:
        parts = [shares.get(name, Share()) for shares in grown]
        key = f"waf_{name.strip('()')}"
        found[f"{key}_written_bytes"] = [part.written_bytes for part in parts]
        found[f"{key}_programmed_bytes"] = [part.programmed_bytes for part in parts]
        found[f"{key}_ratio"] = [part.waf for part in parts]
    return found


def _change(first: Writes, sample: Writes, counter: str) -> int:
    return sample.counters[counter] - first.counters[counter]
