"""The live devices' own tests once more, in the guest, on ublk: what no other kernel here has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.drives import STANDARD
from hardware.guest import REPOSITORY, Guest

HERE = Path(__file__).resolve().parent
TESTS = REPOSITORY / "tests"
SUITE = sorted((TESTS / "devices" / "live").glob("test_*.py"))
NOT_HERE = {"test_outside_suite.py", "test_live_endurance.py"}
"""Of slow tests alone: without an emulated processor they take minutes, xfstests must be built."""
NO_DEVICE = "tests/devices/live/test_live_namespaces.py::test_who_is_on_its_way_out"
"""Of locks alone; an emulated processor has no time for the two looks that it wants."""
LIMIT_S = 5400.0

pytestmark = [pytest.mark.slow, pytest.mark.servers]


@pytest.mark.parametrize("path", [p for p in SUITE if p.name not in NOT_HERE], ids=lambda p: p.stem)
def test_the_suite_passes_on_ublk(machine: Callable[..., Guest], path: Path) -> None:
    name = str(path.relative_to(REPOSITORY))
    outcomes = machine(STANDARD).pytest(
        [name],
        LIMIT_S,
        # xdist: these tests have its marks and hooks.
        options=["-p", "xdist", "-m", "not slow", "--deselect", NO_DEVICE],
        conftests=TESTS,
        path=[HERE / "on_ublk"],
    )
    failed = {ident: each.said for ident, each in outcomes.items() if each.outcome == "failed"}
    assert failed == {}, "\n\n".join(f"{ident}\n{said}" for ident, said in failed.items())
    assert any(each.outcome == "passed" for each in outcomes.values())
