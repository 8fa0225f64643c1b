"""What the children of tests/workloads/test_tpcc.py run: apart, since they import it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from harness.errors import DiskFull
from harness.workloads.tpcc.children import Parent


def echo(parent: Parent, argument: Any) -> Any:
    """Says that it has begun, then returns its argument and what it is told."""
    parent.tell("begun")
    return argument, parent.receive()


def fail(parent: Parent, argument: Any) -> Any:
    """Meets an operating error."""
    raise DiskFull(f"no room for {argument}")


def die(parent: Parent, argument: Any) -> Any:
    """Is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(parent: Parent, argument: Any) -> Any:
    """Says who it is, and never ends."""
    parent.tell(os.getpid())
    time.sleep(600)
