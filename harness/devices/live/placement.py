"""On which processors the way to a live device runs.

A request wakes one thread after the other: the kernel's, that of the loop device, ours, those again
on its way back. Where a wake-up crosses to another processor it takes longer, another time in every
second. So `one-core` has everything between the block layer and the model on one processor, where
nobody watches the clock. Applications run anywhere, and the way is measured from there. Which is
better differs from machine to machine, so `auto` looks; most of what wake-ups cost is that of
processors that sleep, which they do not while a device is paced (system/idle_states).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from harness import _core
from harness.devices.live.registry import Place
from harness.errors import TargetError
from harness.system import workqueues

Placement = Literal["auto", "one-core", "spread"]

WATCH_NS: Final = 40_000
"""Where processors sleep, the pacing thread wakes up so much before a reply is due, and watches the
clock. Where they do not, a timer is 3 us late (99 %: 7 to 12), which is measured with the way, and
nobody is kept from the processor."""


def processor() -> int:
    """The one that `one-core` takes: interrupts tend to come on the first ones."""
    return max(os.sched_getaffinity(0))


def check(placement: Placement) -> None:
    """Raises TargetError if it cannot be had here."""
    if placement == "one-core" and not workqueues.available():
        raise TargetError(
            "placement one-core needs to say where the kernel's own work runs, which this kernel "
            "or container does not let us: --placement spread"
        )


def can_choose() -> bool:
    """Whether there is more than one processor, and one-core can be had."""
    return len(os.sched_getaffinity(0)) > 1 and workqueues.available()


@contextlib.contextmanager
def one_core(place: Place, model: _core.LiveDevice, watch_ns: int) -> Iterator[int]:
    """What serves the device, and the kernel's own work, on one processor while the block runs.

    Not the main thread, which asks the device as an application would. `watch_ns`: so long the
    pacing thread watches the clock otherwise. After a kill, who removes the device puts the
    kernel's work back. Raises TargetError.
    """
    before, chosen = os.sched_getaffinity(0), processor()
    place.bind_workqueues(chosen)
    try:
        _run_on({chosen})
        model.set_watch(0)
        yield chosen
    finally:
        model.set_watch(watch_ns)
        _run_on(before)
        place.free_workqueues()


def _run_on(processors: set[int]) -> None:
    """Every thread of this process but the first."""
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(task.name), processors)
