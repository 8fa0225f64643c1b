"""Processes that do a part of the work: given a function and its argument, they return its result.

A child talks to its parent by its standard input and output, and ends as soon as nobody holds the
other end of them: neither a killed parent leaves children behind, nor does a killed child let its
parent wait.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any, BinaryIO, Final

from harness.errors import HarnessError, Interrupted, InvalidRun, ServerError

_POLL_S: Final = 0.05
_END_S: Final = 10.0


def never() -> bool:
    """Of work that nobody cancels."""
    return False


def nothing() -> None:
    """Of work beside which nothing is watched."""


class Parent:
    """A child's view of its parent."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._outgoing = outgoing
        self._messages: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._listen, args=(incoming,), daemon=True).start()

    def receive(self) -> Any:
        """The parent's next message."""
        return self._messages.get()

    def tell(self, message: Any) -> None:
        """Sends the parent a message."""
        self.send((False, message))

    def send(self, answer: tuple[bool, Any]) -> None:
        """Sends whether it is an error, and what."""
        pickle.dump(answer, self._outgoing)
        self._outgoing.flush()

    def _listen(self, incoming: BinaryIO) -> None:
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                self._messages.put(pickle.load(incoming))  # noqa: S301 - from our own parent
        os._exit(1)  # it is gone


class Child:
    """A parent's view of a child, which runs `function(parent, argument)`."""

    def __init__(self, function: Callable[[Parent, Any], Any], argument: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.workloads.tpcc.children"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self.tell(sys.path)
        self.tell((function, argument))

    def tell(self, message: Any) -> None:
        """Sends a message; to a child that has ended, none: `hear` will say so."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def hear(self) -> Any:
        """Its next message or, in the end, its result. Raises what it raised, and InvalidRun."""
        assert self._process.stdout is not None
        try:
            is_error, message = pickle.load(self._process.stdout)  # noqa: S301 - from our own child
        except (EOFError, pickle.UnpicklingError) as error:
            code = self._process.wait()
            raise InvalidRun(
                f"a client's process ended in the middle (code {code}): run it again"
            ) from error
        if is_error:
            raise message
        return message

    def kill(self) -> None:
        """Ends it at once, if it still runs: whoever listens to it is told."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kills it, when nobody listens any more."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


@contextlib.contextmanager
def started(
    function: Callable[[Parent, Any], Any], arguments: Sequence[Any]
) -> Iterator[list[Child]]:
    """A child per argument, all of them ended when the block is left."""
    children: list[Child] = []
    try:
        children.extend(Child(function, argument) for argument in arguments)
        yield children
    finally:
        for child in children:
            child.end()


def hear_all(
    children: Sequence[Child],
    *,
    is_cancelled: Callable[[], bool],
    watch: Callable[[], None],
    limit_s: float,
) -> list[Any]:
    """The next message of every child; raises what the first child raised that failed.

    `watch` is called some times a second, and may raise: what it has to say goes before a child's
    error. Raises Interrupted when cancelled, ServerError after `limit_s`.
    """
    pool = ThreadPoolExecutor(len(children))
    try:
        futures = [pool.submit(child.hear) for child in children]
        _watch(futures, is_cancelled, watch, time.monotonic() + limit_s)
        return [future.result() for future in futures]
    except BaseException:
        for child in children:
            child.kill()
        raise
    finally:
        pool.shutdown()


def _watch(
    futures: Sequence[Future[Any]],
    is_cancelled: Callable[[], bool],
    watch: Callable[[], None],
    deadline_s: float,
) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        if is_cancelled():
            raise Interrupted("cancelled: what was finished is kept")
        failed = next((e for future in done if (e := future.exception()) is not None), None)
        if isinstance(failed, ServerError):
            _let_it_end(watch)
        watch()
        if failed is not None:
            raise failed
        if time.monotonic() > deadline_s:
            raise ServerError(
                "the server has not answered for too long: see whether its device still works"
            )


def _let_it_end(watch: Callable[[], None]) -> None:
    """A server that dies closes its connections before its process is gone: wait for the latter."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        watch()
        time.sleep(_POLL_S)


def main() -> None:
    """What a child runs."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed gets into what is sent
    sys.path[:] = pickle.load(incoming)  # noqa: S301 - from our own parent
    import_module("harness.workloads.tpcc.connections")  # before anything that needs `ssl`
    function, argument = pickle.load(incoming)  # noqa: S301
    parent = Parent(incoming, outgoing)
    try:
        parent.send((False, function(parent, argument)))
    except HarnessError as error:
        parent.send((True, error))
    except BaseException:  # a bug: the parent learns that we have ended
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever threads are left


if __name__ == "__main__":
    main()
