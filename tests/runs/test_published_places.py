"""Nothing is published by accident: data/ has what params.yaml describes, and nothing else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
from conftest import LITTLE, describe

from harness.errors import BadClaim
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import claims, places, published
from harness.runs.session import Options, open_session

Command = Callable[..., subprocess.CompletedProcess[str]]
NAME = "grace_hash_join"
OTHERWISE = [
    Options(scale="smoke", settings={"users": "[2]"}),
    Options(overrides={"outer_rate": "100 MB/s"}),
    Options(devices={"ssd": "samsung_980_1tb"}),
    Options(host="server_2017"),
    Options(settings={"repetitions": "2"}),
]


def place(project: Project, options: Options) -> places.Place:
    with open_session(project, NAME, "simulated", options) as session:
        return session.place


def data(project: Project) -> dict[str, int]:
    """All files below data/ but the journal, and when they were changed."""
    found = (p for p in (project.root / "data").rglob("*") if p.is_file())
    return {str(p): p.stat().st_mtime_ns for p in found if project.journal not in p.parents}


def test_what_params_describes_is_published(checkout: Project) -> None:
    whole = places.published(checkout, NAME, "simulated")
    assert place(checkout, Options()) == whole
    assert place(checkout, Options(scale="paper", settings={"repetitions": "3"})) == whole


@pytest.mark.parametrize("options", OTHERWISE, ids=str)
def test_what_it_does_not_describe_has_a_folder_of_its_own(
    checkout: Project, options: Options
) -> None:
    found = place(checkout, options)
    assert found.folder.parent == checkout.build / "runs"
    assert found == place(checkout, options), "the same again"
    assert len({place(checkout, other).folder for other in OTHERWISE}) == len(OTHERWISE)


def test_another_scale_leaves_data_as_it_is(harness_here: Command, checkout: Project) -> None:
    describe(checkout, NAME, "simulated", **{**LITTLE, "scale": "small"})
    before = data(checkout)
    settings = ("--set", "repetitions=1", "--scale", "smoke")
    done = harness_here("run", NAME, *settings)
    assert done.returncode == 0, done.stderr
    assert data(checkout) == before
    [folder] = (checkout.build / "runs").iterdir()
    assert str(folder) in done.stdout
    assert "scale: smoke" in done.stdout
    page = (folder / "index.html").read_text()
    assert "scale: smoke" in page
    assert "<svg" in page
    assert set(pd.read_csv(folder / "results.csv").scale) == {"smoke"}
    assert json.loads((folder / "results.about.json").read_text())["scale"] == "smoke"
    assert any((folder / "figures").glob("*.svg"))


def test_verdicts_of_what_is_published_say_its_scale(
    harness_here: Command, checkout: Project
) -> None:
    describe(checkout, NAME, "simulated", **LITTLE)
    assert harness_here("run", NAME).returncode == 0
    assert published.results(checkout, NAME, "simulated").scale == "smoke"
    assert "tier simulated, scale smoke" in harness_here("claims").stdout


def test_scales_are_not_judged_together(project: Project) -> None:
    rows = pd.DataFrame({"scale": ["smoke", "paper"], "variant": "paper"})
    mixed = Results("simulated", rows, {}, lambda _: None)
    with pytest.raises(BadClaim, match=r"several scales .* \(paper, smoke\)"):
        claims.judge(project, NAME, mixed)
    with pytest.raises(BadClaim, match="several scales"):
        claims.judge_variants(project, NAME, mixed)


def test_a_figure_is_stamped_with_its_scale() -> None:
    results = Results("simulated", pd.DataFrame(), {}, lambda _: None)
    assert results.stamp == "tier: simulated"
    assert replace(results, scale="smoke").stamp == "tier: simulated, scale: smoke"
