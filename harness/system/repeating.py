"""Something done again and again, in a thread of its own, while a block runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def every(interval_s: float, do: Callable[[], object], *, name: str) -> Iterator[None]:
    """Calls it first after one interval; not any more when the block has ended.

    `name`: the thread's. What `do` raises ends the repeating, not the block: it should raise
    nothing.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(interval_s):
            do()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
