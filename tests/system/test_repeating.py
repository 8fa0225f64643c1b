"""What is done again and again while a block runs."""

from __future__ import annotations

import threading
import time

import pytest

from harness.system import repeating

INTERVAL_S = 0.01


def test_it_is_done_again_until_the_block_ends() -> None:
    calls: list[str] = []
    enough = threading.Event()

    def do() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) >= 3:
            enough.set()

    with repeating.every(INTERVAL_S, do, name="again"):
        assert enough.wait(10)
    done = len(calls)
    assert set(calls) == {"again"}
    time.sleep(10 * INTERVAL_S)
    assert len(calls) == done
    assert not [thread for thread in threading.enumerate() if thread.name == "again"]


def test_a_block_that_ends_at_once_or_by_an_error_waits_for_no_interval() -> None:
    calls: list[int] = []
    began = time.monotonic()
    with (
        pytest.raises(LookupError),
        repeating.every(60, lambda: calls.append(1), name="again"),
    ):
        raise LookupError
    assert not calls
    assert time.monotonic() - began < 30
