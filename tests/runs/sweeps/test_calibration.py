"""The method, tried on a real model: machines that were planted are found again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy_world
import yaml

from harness.paths import Project
from harness.runs.sweeps import nearest, recorded

CLAIMS = [
    {"id": f"toy-{depth}", "metric": f"SELECT any_value(iops) FROM r WHERE queue_depth = {depth}"}
    for depth in (1, 8)
]


def unknown(place: str, low: int, high: int, default: int) -> dict[str, Any]:
    sets = {place: "{} us"}
    rest = {"what": place, "whole": True, "prior": "flash", "excluded": "nothing"}
    return {"sets": sets, "range": [low, high], "default": default, **rest}


UNKNOWNS = {
    "title": "Toy",
    "scale": "paper",
    "unknowns": {
        # At depth 1 both count alike; at depth 8 the dies are busy reading, not waiting.
        "read": unknown("profile drive.read_page", 20, 200, 45),
        "latency": unknown("profile drive.read_latency", 1, 100, 7),
    },
}


@pytest.mark.slow
def test_planted_machines_are_found_again(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of a modelled drive at two depths tell its tR and its latency, which were drawn."""
    toy_world.furnish(checkout, *CLAIMS)
    (checkout.root / "hardware" / "unknowns" / "toy.yaml").write_text(yaml.safe_dump(UNKNOWNS))
    command = [str(Path(sys.executable).with_name("harness")), "sweep", "toy", "--machines", "300"]
    subprocess.run(
        [*command, "--workers", "2"],
        cwd=checkout.root,
        env=toy_world.environment(),
        check=True,
        capture_output=True,
    )
    monkeypatch.syspath_prepend(toy_world.environment()["PYTHONPATH"])  # here it is known, too
    found = recorded.read(checkout, "toy", checkout.build / "sweeps" / "toy.paper.sobol")
    table = nearest.planted(found, [claim["id"] for claim in CLAIMS], 100)
    for name, trials in table.groupby("unknown"):
        assert len(trials) == 100
        assert trials.found.sum() >= 85, name
        assert (trials.highest - trials.lowest).mean() < 0.6, name
