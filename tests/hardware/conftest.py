"""Tests in the guest are tests of the host's run: collected here, run there, reported here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

INSIDE = Path(__file__).resolve().parent / "inside"
IN_GUEST = Path("/agent.py").is_file()


def pytest_configure(config: pytest.Config) -> None:
    """Nothing runs yet."""
    config.stash[MACHINES] = Machines()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the guest, if there is one."""
    config.stash[MACHINES].close()


class Machines:
    """The run's guest; with other drives, another one takes its place."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._drives: Any = None
        self._guest: Any = None

    def get(self, drives: Any) -> Any:
        """A running guest with these drives. Skips where none can be started."""
        from hardware import guest  # noqa: PLC0415 - in the guest there is no use for it

        if missing := guest.missing():
            pytest.skip(missing)
        if self._guest is None or drives != self._drives or not self._guest.lives():
            self.close()
            self._guest = self._stack.enter_context(guest.boot(drives))
            self._drives = drives
        return self._guest

    def close(self) -> None:
        """Ends the guest."""
        self._guest = None
        self._stack.close()


MACHINES = pytest.StashKey[Machines]()


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`machine(drives)`: the run's guest with these drives, as the last test has left it."""
    return request.config.stash[MACHINES].get


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the host, a test of inside/ is replaced by a question to the guest."""
    if not IN_GUEST:
        items[:] = [_asked(item) if INSIDE in item.path.parents else item for item in items]


def _asked(item: pytest.Item) -> pytest.Item:
    assert item.parent is not None
    question: InGuest = InGuest.from_parent(item.parent, name=item.name, nodeid=item.nodeid)
    for mark in item.iter_markers():
        question.add_marker(getattr(pytest.mark, mark.name)(*mark.args, **mark.kwargs))
    for name in ("slow", "servers"):
        question.add_marker(name)
    return question


class FailedInGuest(Exception):
    """What pytest said there."""


class InGuest(pytest.Item):
    """A test that runs in the guest. The first of a module runs all of it that is to run."""

    def runtest(self) -> None:
        """Passes, fails or skips as the test did in the guest."""
        module = self.parent
        while not isinstance(module, pytest.Module):
            assert module is not None
            module = module.parent
        outcomes = self.session.stash.setdefault(OUTCOMES, {})
        if self.nodeid not in outcomes:
            outcomes |= dict(self._run(module))
        there = outcomes.get(self.nodeid) or outcomes.get(module.nodeid)
        if there is None:
            raise FailedInGuest("it was collected here, but not in the guest")
        if there.outcome == "skipped":
            pytest.skip(f"in the guest: {there.said}")
        if there.outcome != "passed":
            raise FailedInGuest(there.said)

    def _run(self, module: pytest.Module) -> Iterator[tuple[str, Any]]:
        from hardware.drives import STANDARD  # noqa: PLC0415
        from hardware.guest import Outcome  # noqa: PLC0415

        wanted = [i.nodeid for i in self.session.items if module in i.listchain()]
        machine = self.config.stash[MACHINES].get(getattr(module.obj, "DRIVES", STANDARD))
        try:
            yield from machine.pytest(wanted).items()
        except Exception as error:  # whatever it was, it has happened to all of them
            yield from ((ident, Outcome("failed", str(error))) for ident in wanted)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The guest's own words, not ours."""
        if isinstance(excinfo.value, FailedInGuest):
            return f"in the guest:\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, None, self.name


OUTCOMES = pytest.StashKey[dict[str, Any]]()
