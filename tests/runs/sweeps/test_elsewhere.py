"""What others measured on a study's device, on the machines of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY
from live_world import harness
from sweep_files import note

from harness.devices.profiles import load_device
from harness.errors import BadParameter
from harness.experiments.elsewhere import Elsewhere
from harness.experiments.msdj_tpcc import elsewhere as msdj
from harness.paths import Project
from harness.runs.sweeps import answers, elsewhere, recorded
from harness.runs.sweeps.sweep import Asked, Sweep, parquet

PROFILES = REPOSITORY / "hardware" / "profiles"
PM953 = load_device(PROFILES, "samsung_pm953_480gb")


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return Sweep(Project(REPOSITORY), "msdj_tpcc", Asked(machines=7))


def test_with_a_stream_for_each_lifetime_nothing_is_copied() -> None:
    assert msdj._programmed(PM953, "id") == pytest.approx(1.0, abs=0.02)
    assert msdj._programmed(PM953, "none") > 1.2


def test_jobs_are_as_long_as_their_data_lives() -> None:
    jobs = msdj._jobs(100 * msdj._REQUEST_BYTES * 10)
    spans = [(job.end_bytes or 0) - job.begin_bytes for job in jobs]
    assert [span / spans[0] for span in spans] == [1, 10, 33, 55]
    assert len({job.requests for job in jobs}) == 1
    assert all(a.end_bytes == b.begin_bytes for a, b in pairwise(jobs))
    assert jobs[-1].requests * msdj._REQUEST_BYTES == 2 * spans[-1]


def test_a_mail_server_with_streams_on_a_small_drive() -> None:
    """Both drives are asked with the same writes; nothing programs less than the host writes."""
    without, apart = msdj._mail_wafs(PM953, 2_500_000_000, 5 << 20)
    assert without >= 1.0
    assert apart >= 1.0
    assert apart != without


def test_a_drive_without_streams_or_a_disk_cannot_be_asked() -> None:
    with pytest.raises(BadParameter, match="streams"):
        msdj.endurance_gain(load_device(PROFILES, "crucial_mx500_250gb"))
    with pytest.raises(BadParameter, match="no streams"):
        msdj.endurance_gain(load_device(PROFILES, "seagate_250gb"))
    with pytest.raises(BadParameter, match="streams"):
        msdj.amplification_saved(load_device(PROFILES, "crucial_mx500_250gb"))


def test_machines_with_the_same_drive_are_asked_once(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def wanted(study: str) -> Sequence[Elsewhere]:
        def measure(profile: object) -> float:
            asked.append(str(profile))
            if len(asked) == 2:
                raise BadParameter("no such drive")
            return 2.0

        known = Elsewhere("x", "pm953", "s", "t", "2x", (1.5, 2.5), "w", measure)
        return [known] if study == "msdj_tpcc" else []

    monkeypatch.setattr(elsewhere, "of_study", wanted)
    first, second = sweep.machines[1], sweep.machines[2]
    assert first.profiles != second.profiles
    values = elsewhere.measured("msdj_tpcc", [first, first, second])
    assert len(asked) == 2
    assert values.machine.tolist() == [1, 1, 2]
    np.testing.assert_array_equal(values.value, [2.0, 2.0, np.nan])
    with pytest.raises(BadParameter, match="nothing is on file"):
        elsewhere.measured("trim_fallocate", sweep.machines)


def test_measurements_are_judged_with_the_machines(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "msdj_tpcc.smoke.sobol"
    sweep.publish(folder)
    machines = pd.read_parquet(folder / "machines.parquet").assign(state="finished")
    (folder / "machines.parquet").write_bytes(parquet(machines))
    note(folder)
    there = recorded.read(Project(REPOSITORY), "msdj_tpcc", folder)
    assert elsewhere.read(folder, "msdj_tpcc") is None
    found = [2.0, 2.0, 1.0, float("nan"), 2.5, 3.0, 1.5, 1.4]
    values = pd.DataFrame(
        {"machine": range(8), "claim": "samsung-streams-endurance", "value": found}
    )
    elsewhere.write(values, sweep.points, "msdj_tpcc", folder)
    kept = elsewhere.read(folder, "msdj_tpcc")
    assert kept is not None
    pd.testing.assert_frame_equal(kept, values)
    share = answers.shares(elsewhere.judged(there, "msdj_tpcc", kept)).iloc[0]
    assert (share.machines, share.holds) == (6, 3)  # the default one was not drawn
    assert share.default_value == 2.0
    assert share.default_holds


def test_a_measurement_is_of_its_machine_and_of_its_code(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number the machine has now; what is of other machines or other code is left out."""
    folder = tmp_path / "msdj_tpcc.small.sobol"
    sweep.publish(folder)
    values = pd.DataFrame(
        {"machine": range(8), "claim": "samsung-streams-endurance", "value": np.arange(8.0)}
    )
    elsewhere.write(values, sweep.points, "msdj_tpcc", folder)
    machines = pd.read_parquet(folder / "machines.parquet").iloc[[0, 5, 2]]
    others = machines.assign(machine=[0, 1, 2])
    others.loc[others.machine == 0, "points"] = "of another machine"
    (folder / "machines.parquet").write_bytes(parquet(others))
    note(folder)
    kept = elsewhere.read(folder, "msdj_tpcc")
    assert kept is not None
    assert dict(zip(kept.machine, kept.value, strict=True)) == {1: 5.0, 2: 2.0}
    monkeypatch.setattr(elsewhere, "code_of", lambda study: "of before")
    assert elsewhere.read(folder, "msdj_tpcc") is None


def test_other_studies_have_nothing_to_ask() -> None:
    done = harness("sweep", "grace_hash_join", "--elsewhere", "--machines", "1")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
