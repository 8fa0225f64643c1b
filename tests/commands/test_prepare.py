"""`harness hardware prepare`: what it runs is about the drive that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.commands import hardware
from harness.drives import capabilities, guard, preparation
from harness.drives.capabilities import Capabilities
from harness.drives.discovery import Drive
from harness.drives.targets import Step
from harness.errors import TargetError
from harness.runs import roles

PLANNED = replace(roles.examples()["ssd"], name="sdb", number="8:16", node=Path("/dev/sdb"))
OTHERS = {
    "it is another node": replace(PLANNED, name="sdc", number="8:32", node=Path("/dev/sdc")),
    "it was away": replace(PLANNED, sequence="42"),
}


@dataclass(frozen=True)
class Held(guard.Part):
    """A claimed drive that permits everything."""

    def permit(self, step: str, written_bytes: int) -> None:
        """See targets.Target."""

    @contextmanager
    def whole(self, _: Sequence[Step]) -> Iterator[Callable[[Step], None]]:
        """See guard.ClaimedDrive."""
        yield lambda _: None


@pytest.mark.parametrize("way", ["secure_erase", "discard"])
@pytest.mark.parametrize("held", OTHERS.values(), ids=OTHERS)
def test_a_drive_that_came_back_as_another_is_not_erased(
    way: str, held: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps name the node that it had when they were shown, which may be another drive's."""
    monkeypatch.setattr(guard, "check", lambda _: PLANNED)
    monkeypatch.setattr(guard, "claimed", lambda *_, **__: nullcontext(Held(held)))
    monkeypatch.setattr(capabilities, "read", lambda *_: Capabilities(discard=True, security=True))
    monkeypatch.setattr(preparation, "_call", lambda *_: pytest.fail("it was run"))
    with pytest.raises(TargetError, match="mine is not what it was when the plan was made"):
        hardware.prepare("mine", way=way)
