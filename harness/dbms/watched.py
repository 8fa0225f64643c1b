"""Queries in threads, watched: cancelled, ended, or told what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from typing import Any, Final

import psycopg

from harness.dbms.postgres import Server
from harness.errors import DiskFull, Interrupted, ServerError

_POLL_S: Final = 0.05
_CANCEL_LIMIT_S: Final = 30.0
_NO_SPACE: Final = "53100"
_NO_ROOM: Final = "No space left on device"  # PostgreSQL has no code for a file that it cannot make
_SHUTTING_DOWN: Final = "57P"


def wait_for(
    futures: Sequence[Future[Any]],
    server: Server,
    is_cancelled: Callable[[], bool],
    watch: Callable[[], None],
    *,
    full: str,
) -> None:
    """Until all have ended well; raises as soon as one has not, or must not go on.

    `watch` is called some times a second meanwhile. `full`: what to do if the device is. Raises
    Interrupted when cancelled, DiskFull, ServerError if the server ends or a query fails.
    """
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        if is_cancelled():
            raise Interrupted("cancelled: what was finished is kept")
        if not server.is_running():
            raise _ended(server)
        for future in done:
            if (error := future.exception()) is not None:
                raise _told(error, server, full) from error
        watch()


def _told(error: BaseException, server: Server, full: str) -> BaseException:
    """What a client's error means to whoever runs this."""
    if not isinstance(error, psycopg.Error):
        return error
    first = str(error).strip().splitlines()[:1] or [type(error).__name__]
    if error.sqlstate == _NO_SPACE or _NO_ROOM in first[0]:
        return DiskFull(
            f"PostgreSQL's temp files do not fit on the device under test ({first[0]}): {full}"
        )
    if error.sqlstate is None or error.sqlstate.startswith(_SHUTTING_DOWN):
        return _ended(server)
    return ServerError(f"PostgreSQL: {first[0]}")


def _ended(server: Server) -> ServerError:
    if server.cgroup is not None and server.cgroup.killed():
        return ServerError(
            "the kernel has killed a process of PostgreSQL, since its control group's limit is "
            "too low: allow more cache_bytes, or use fewer clients or less work_mem"
        )
    return ServerError(f"PostgreSQL ended in the middle: {server.last_words()}")


def cancel(
    connections: Sequence[psycopg.Connection[Any]],
    futures: Sequence[Future[Any]],
    server: Server,
) -> None:
    """Ends all queries: asks first; what does not obey loses its server."""
    for connection in connections:
        with suppress(psycopg.Error):
            connection.cancel()
    if not server.is_running() or wait(futures, timeout=_CANCEL_LIMIT_S).not_done:
        server.end_now()
