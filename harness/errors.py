"""Operating errors: what went wrong outside the program, and what to do about it.

A bug is an `AssertionError`; everything here is the world's doing. The command line prints the
message as one line and exits with code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_CODE = 2


class HarnessError(Exception):
    """An operating error. The message is one line and says what to do."""


class UnknownName(HarnessError):
    """A name that is in no table: the message lists the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = _near(name, self.known)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(
            f"unknown {kind} {name!r}; known: {', '.join(self.known) or 'none'}{meant}"
        )


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Known names that are like this one, or have a part that is."""

    def likeness(candidate: str) -> float:
        parts = (candidate, *candidate.split("_"))
        return max(difflib.SequenceMatcher(None, name.lower(), part).ratio() for part in parts)

    like = sorted((-likeness(candidate), candidate) for candidate in known)
    return [candidate for negative, candidate in like[:3] if negative <= -0.7]


class BadParameter(HarnessError):
    """A parameter that is unknown, of the wrong form, or impossible."""


class BadProfile(HarnessError):
    """A device or host profile that cannot be used."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"profile {path}: {problem}")


class BadClaim(HarnessError):
    """A claim in data/published/ whose metric cannot be computed."""


class TraceError(HarnessError):
    """A block I/O trace that cannot be used. `line` is 1-based: of a text, or a table's row."""

    def __init__(self, path: str, line: int, message: str) -> None:
        self.path, self.line, self.message = path, line, message
        super().__init__(f"{path}:{line}: {message}")


class TraceIncomplete(HarnessError):
    """A recorded trace that lacks something: `problems` says what disagrees with what."""

    def __init__(self, kept_as: str, problems: Iterable[str]) -> None:
        self.kept_as, self.problems = kept_as, list(problems)
        super().__init__(
            f"the recording is not complete: {'; '.join(self.problems)}; it is kept as {kept_as}, "
            "record again (with larger buffers, or at a lower rate)"
        )


class TargetError(HarnessError):
    """A file or device that an experiment may not or cannot run on."""


class DiskFull(HarnessError):
    """No space left, on the device under test or under our own data."""


class DataFolderError(HarnessError):
    """Our own data folder cannot be read or written."""


class DeviceError(HarnessError):
    """The device under test failed a request."""


class InvalidRun(HarnessError):
    """A run was measured, but its numbers cannot be trusted: the message says why."""


class DataCorrupted(HarnessError):
    """Data came back different from what was written. The run is worthless."""


class ServerError(HarnessError):
    """A private database server did not start, or failed or ended while it was needed."""


class ServerLost(ServerError):
    """One that somebody else has killed, or that was given too little time: not its own doing."""


class MissingTool(HarnessError):
    """A program or library that this machine lacks: the message says how to install it."""


class Interrupted(HarnessError):
    """Ctrl-C, or a cancelled run. What was finished is kept; the next run continues there."""
