"""`harness hardware prepare` and `claim`: about which drive it is, and what is told of it."""

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
from harness.errors import Interrupted, TargetError
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


LOST = "the claim's header could not be written again (Input/output error): claim it again"


class Stopped(Held):
    """One that is interrupted while it is erased."""

    notes: Sequence[str] = ()

    @contextmanager
    def whole(self, _: Sequence[Step]) -> Iterator[Callable[[Step], None]]:
        """See guard.ClaimedDrive."""
        error = KeyboardInterrupt()
        for note in self.notes:
            error.add_note(note)
        raise error
        yield


class Lost(Stopped):
    """And its header is gone."""

    notes = (LOST,)


def interrupted(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "check", lambda _: PLANNED)
    monkeypatch.setattr(guard, "claimed", lambda *_, **__: nullcontext(held))
    monkeypatch.setattr(capabilities, "read", lambda *_: Capabilities(security=True))
    hardware.prepare("mine", way="secure_erase")


def test_an_interrupt_tells_what_it_has_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program says of others that nothing was left half done."""
    with pytest.raises((Interrupted, KeyboardInterrupt)) as raised:
        interrupted(Lost(PLANNED), monkeypatch)
    assert isinstance(raised.value, Interrupted)
    assert str(raised.value) == f"interrupted; and {LOST}"
    with pytest.raises(KeyboardInterrupt):
        interrupted(Stopped(PLANNED), monkeypatch)


def test_a_way_that_is_refused_names_the_drive_as_it_is_called_tomorrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = Capabilities(security=True, security_enabled=True, security_locked=True)
    by_id = Path("/dev/disk/by-id/ata-DRIVE")
    monkeypatch.setattr(guard, "check", lambda _: replace(PLANNED, by_id=(by_id,)))
    monkeypatch.setattr(capabilities, "read", lambda *_: locked)
    hardware.prepare("mine", plan=True)
    said = " ".join(capsys.readouterr().out.split())
    assert f"--security-unlock flashlab {by_id}, then" in said


@pytest.mark.parametrize("found", ["", "f" * 32])
def test_a_claim_that_would_be_lost_is_told(
    found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = Step("write the header", ("write", "/dev/sdb"), 1 << 20, 0)
    by_id = Path("/dev/disk/by-id/ata-DRIVE")
    made = guard.ClaimPlan("mine", by_id, PLANNED, (header,), found)
    monkeypatch.setattr(guard, "plan_claim", lambda *_: made)
    hardware.claim(by_id, "mine", plan=True)
    said = capsys.readouterr().out
    assert ("whoever made it loses it" in said) == bool(found)
    assert made.token in said
