"""Sweeps: the same bytes however many workers there are, in any order, and whoever is killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd
import psutil
import pytest
import toy_world
import yaml
from conftest import make_checkout
from sweep_files import note

from harness import experiments
from harness.errors import BadParameter, DataCorrupted, DiskFull, InvalidRun, UnknownName
from harness.paths import Project
from harness.runs import code
from harness.runs.sweeps import kept, tables
from harness.runs.sweeps.pool import open_pool
from harness.runs.sweeps.sweep import Asked, Sweep
from harness.runs.sweeps.work import WrongWorker, check, run_batch
from harness.workloads.tpch import JoinInputs

pytestmark = pytest.mark.builds  # processes by the dozen: not beside the quick tests

UNKNOWNS = {
    "title": "Toy",
    "scale": "paper",
    "unknowns": {
        "read": {
            "what": "tR",
            "sets": {"profile drive.read_page": "{} us"},
            "range": [20, 200],
            "whole": True,
            "default": 45,
            "prior": "flash",
            "excluded": "nothing",
        },
        "unit": {
            "what": "the map's unit: 12 KiB divide no page",
            "choices": {
                "4 KiB": {"profile drive.map_unit": "4 KiB"},
                "12 KiB": {"profile drive.map_unit": "12 KiB"},
            },
            "default": "4 KiB",
            "prior": "flash",
            "excluded": "nothing",
        },
    },
}
MACHINES = 16
PAPER = ["paper"]
HARNESS = str(Path(sys.executable).with_name("harness"))
DASK = str(Path(sys.executable).with_name("dask"))


@pytest.fixture
def toy(checkout: Project) -> Project:
    return furnished(checkout)


def furnished(project: Project) -> Project:
    toy_world.furnish(project)
    path = project.root / "hardware" / "unknowns" / "toy.yaml"
    path.write_text(yaml.safe_dump(UNKNOWNS))
    return project


@dataclass(frozen=True)
class Whole:
    """A sweep by one worker that nobody disturbed; and what it says."""

    project: Project
    out: str
    published: dict[str, bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, raw: Path, smoke: JoinInputs) -> Whole:
    del smoke  # they are in raw
    project = furnished(make_checkout(tmp_path_factory.mktemp("whole") / "checkout", raw))
    out = ran(project, "--workers", "1")
    return Whole(project, out, published(project))


@contextmanager
def started(project: Project, *command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended at the end, if it has not ended itself."""
    with subprocess.Popen(
        command,
        cwd=project.root,
        env={**toy_world.environment(), "TMPDIR": str(scratch(project)), **more},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def scratch(project: Project) -> Path:
    """Where workers keep what a point needs."""
    folder = project.root / "scratch"
    folder.mkdir(exist_ok=True)
    return folder


def left(project: Project) -> list[Path]:
    """What workers have left there."""
    return [path for path in scratch(project).rglob("*") if path.suffix == ".yaml"]


def sweep(project: Project, *more: str, machines: int = MACHINES) -> tuple[str, ...]:
    return (HARNESS, "sweep", "toy", "--machines", str(machines), *more)


def ran(project: Project, *more: str, code: int = 0) -> str:
    with started(project, *sweep(project, *more)) as process:
        out, error = process.communicate(timeout=300)
    assert process.returncode == code, error
    return out + error


def published(project: Project) -> dict[str, bytes]:
    folder = project.build / "sweeps" / "toy.paper.sobol"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def lines(project: Project) -> list[str]:
    path = project.journal / "sweeps" / "toy" / "journal.jsonl"
    return path.read_text().splitlines() if path.is_file() else []


def keys(project: Project) -> list[str]:
    return [json.loads(line.partition(" ")[2])["key"] for line in lines(project)]


def assert_each_once(project: Project) -> None:
    """All points of machines that are finished, none twice, of a refused one at least the first."""
    machines = pd.read_parquet(project.build / "sweeps" / "toy.paper.sobol" / "machines.parquet")
    finished, refused = (int((machines.state == state).sum()) for state in ("finished", "refused"))
    found = keys(project)
    assert len(found) == len(set(found))
    assert 2 * finished + refused <= len(found) <= 2 * (finished + refused) == 2 * (MACHINES + 1)


def forget(project: Project) -> None:
    (project.journal / "sweeps" / "toy" / "journal.jsonl").unlink()


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The pool's: processes that the client has spawned."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [each for each in children if _is_worker(each)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def wait_for_lines(project: Project, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while len(lines(project)) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_same_bytes_from_one_two_and_three_workers_and_after_kills(
    whole: Whole, toy: Project
) -> None:
    assert re.search(r"dashboard: http://127\.0\.0\.1:\d+/status", whole.out)
    assert_each_once(whole.project)

    noted = lines(whole.project)
    ran(whole.project, "--workers", "1")  # nothing is left to do
    assert lines(whole.project) == noted
    assert published(whole.project) == whole.published

    ran(toy, "--workers", "2")
    assert published(toy) == whole.published

    forget(toy)
    chance = random.Random(1)
    with started(toy, *sweep(toy, "--workers", "3")) as process:
        for done in (1, 6, 12):
            wait_for_lines(toy, done, process)
            chance.choice(workers_of(process)).kill()
        _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert published(toy) == whole.published
    assert_each_once(toy)
    assert left(toy) == []


def test_what_is_recorded_is_not_run_again(whole: Whole, toy: Project) -> None:
    """A clone of what somebody has published goes on where that ended."""
    recorded = toy.root / "data" / "sweeps" / "toy.paper.sobol"
    shutil.copytree(whole.project.build / "sweeps" / "toy.paper.sobol", recorded)
    ran(toy)
    assert lines(toy) == []
    assert published(toy) == whole.published

    with started(toy, *sweep(toy, machines=2 * MACHINES)) as process:
        _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    first = pd.read_parquet(toy.build / "sweeps" / "toy.paper.sobol" / "machines.parquet")
    new = first.state[MACHINES + 1 :].value_counts()
    assert len(new) == 2
    assert 2 * new.finished + new.refused <= len(keys(toy)) <= 2 * MACHINES  # the new ones' points
    pd.testing.assert_frame_equal(
        first.iloc[: MACHINES + 1], pd.read_parquet(recorded / "machines.parquet")
    )


def test_the_default_machine_alone_is_a_beginning_of_any_sample(whole: Whole, toy: Project) -> None:
    folder = toy.build / "sweeps" / "toy.paper.sobol"
    ran(toy, "--machines", "0")
    machines = pd.read_parquet(folder / "machines.parquet")
    assert list(machines.machine) == [0]
    first = keys(toy)
    ran(toy)
    assert published(toy) == whole.published
    assert keys(toy)[: len(first)] == first
    assert_each_once(toy)


def test_answers_are_not_published_without_the_pipeline_s_own(toy: Project) -> None:
    """As while a pipeline runs: what a claim is at its scale is not there to be looked at."""
    ran(toy, "--scale", "smoke", "--machines", "1")
    made = toy.root / "data" / "sweeps" / "toy.smoke.sobol"
    shutil.copytree(toy.build / "sweeps" / "toy.smoke.sobol", made)
    said = "no claim can be called of another scale"
    asked = ("--scale", "smoke", "--answers")
    assert said in ran(toy, *asked, "--publish", code=2)
    assert not list((toy.root / "data" / "sweeps").rglob("*.csv"))
    assert said in ran(toy, *asked)
    assert list((toy.build / "sweeps").rglob("lines.csv"))

    note(made, code="of before")
    told = ran(toy, *asked, "--publish")
    assert "of an earlier model" in told
    assert said not in told
    assert list((toy.root / "data" / "sweeps").rglob("lines.csv"))


def test_a_record_of_something_else_is_left_aside(whole: Whole, tmp_path: Path) -> None:
    recorded = tmp_path / "toy.paper.sobol"
    shutil.copytree(whole.project.build / "sweeps" / "toy.paper.sobol", recorded)
    about = json.loads((recorded / "about.json").read_text())
    machines = pd.read_parquet(recorded / "machines.parquet")
    there = kept.read(recorded, about["claims"], PAPER)
    assert set(there) == set(machines.points)
    assert {each.state for each in there.values()} == {"finished", "refused"}

    [first, *others] = about["claims"]
    asked = {first: about["claims"][first], **dict.fromkeys(others, "new")}
    of_one = kept.read(recorded, asked, PAPER)
    assert set(of_one) == set(there)
    assert {name for each in of_one.values() for name in each.values} == {first}
    assert kept.read(recorded, dict.fromkeys(about["claims"], "of other claims"), PAPER) == {}
    assert kept.read(recorded, about["claims"], ["paper", "board"]) == {}
    machines.loc[3, "state"] = "unfinished"
    machines.to_parquet(recorded / "machines.parquet")
    assert kept.read(recorded, about["claims"], PAPER) == {}  # its tables are not of one sweep
    note(recorded)
    assert set(kept.read(recorded, about["claims"], PAPER)) == set(machines.points.drop(3))
    about = json.loads((recorded / "about.json").read_text())
    earlier = {name: value for name, value in about.items() if name != "claims"}
    (recorded / "about.json").write_text(json.dumps(earlier))
    assert kept.read(recorded, about["claims"], PAPER) == {}
    assert kept.read(tmp_path / "nowhere", about["claims"], PAPER) == {}


def test_a_record_that_was_replaced_in_part_is_none(tmp_path: Path) -> None:
    """As a merge leaves it that takes one table of each side."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, value in ((one, 1.0), (other, 2.0)):
        folder.mkdir()
        pd.DataFrame({"machine": [0]}).to_parquet(folder / "machines.parquet")
        pd.DataFrame({"value": [value]}).to_parquet(folder / "claims.parquet")
        note(folder, study="toy")
    assert tables.read(one)[1].value.tolist() == [1.0]
    shutil.copy(other / "claims.parquet", one)
    with pytest.raises(ValueError, match=r"about\.json is not of the tables beside it"):
        tables.read(one)
    (other / "about.json").write_text('{"study": "toy"}')  # of an earlier version
    with pytest.raises(ValueError, match="not of the tables"):
        tables.read(other)
    (other / "about.json").unlink()
    with pytest.raises(OSError, match="about"):
        tables.read(other)


def test_a_machine_is_the_same_by_its_points_and_claims_by_what_they_ask_for(
    tmp_path: Path,
) -> None:
    assert kept.points_digest(["a", "b"]) != kept.points_digest(["b", "a"])
    project = Project(tmp_path)
    project.published.mkdir(parents=True)

    def digest(relation: str, metric: str, expected: str) -> str:
        (project.published / "claims.yaml").write_text(
            f"toy: {{title: t, reference: r, relation: {relation}, claims: [{{id: a, place: p, "
            f"statement: s, metric: {metric}, published: '1', expected: {expected}, why: w}}]}}\n"
        )
        return kept.claims_digests(project, "toy")["a"]

    one = digest("select 1", "select 1", "[0, 1]")
    assert one == digest("select 1", "select 1", "[2, 3]")
    assert one != digest("select 1", "select 2", "[0, 1]")
    assert one != digest("select 2", "select 1", "[0, 1]")
    (project.published / "toy.csv").write_text("cell,elapsed_s\n")
    assert one != digest("select 1", "select 1", "[0, 1]")


def test_a_record_of_more_machines_is_not_replaced(whole: Whole, toy: Project) -> None:
    recorded = toy.root / "data" / "sweeps" / "toy.paper.sobol"
    shutil.copytree(whole.project.build / "sweeps" / "toy.paper.sobol", recorded)
    before = {path.name: path.read_bytes() for path in recorded.iterdir()}
    said = ran(toy, "--machines", "2", "--publish", code=2)
    assert f"--machines {MACHINES}" in said
    assert {path.name: path.read_bytes() for path in recorded.iterdir()} == before
    ran(toy, "--machines", "2")  # nobody is in the way of one's own


def test_answers_of_another_record_go_with_it(toy: Project) -> None:
    folder = toy.build / "sweeps" / "toy.paper.sobol"
    line = folder / "answers" / "lines.csv"

    def answered(*more: str) -> bool:
        line.parent.mkdir(exist_ok=True)
        line.write_text("of these machines")
        ran(toy, *more)
        return line.is_file()

    ran(toy, "--machines", "2")
    assert answered("--machines", "2")
    assert not answered("--machines", "4")  # the same two, and two more
    toy_world.furnish(toy, {"id": "toy-most", "metric": "SELECT max(iops) FROM r"})
    assert not answered("--machines", "4")  # the same four, and what a new claim says of them


def test_a_recorded_machine_is_asked_for_a_claim_that_is_new_if_its_points_are_here(
    toy: Project,
) -> None:
    folder = toy.root / "data" / "sweeps" / "toy.paper.sobol"

    def asked() -> tuple[set[str], set[str]]:
        machines, values = (
            pd.read_parquet(folder / f"{n}.parquet") for n in ("machines", "claims")
        )
        of_all = values.groupby("claim").machine.nunique() == (machines.state == "finished").sum()
        about = json.loads((folder / "about.json").read_text())
        return set(of_all.index[of_all]), set(about["claims"])

    ran(toy, "--machines", "2", "--publish")
    assert asked() == ({"toy-depth"}, {"toy-depth"})
    new = {"id": "toy-most", "metric": "SELECT max(iops) FROM r"}
    toy_world.furnish(toy, new)
    ran(toy, "--machines", "2", "--publish")
    assert asked() == ({"toy-depth", "toy-most"}, {"toy-depth", "toy-most"})

    forget(toy)
    toy_world.furnish(toy, new, {"id": "toy-least", "metric": "SELECT min(iops) FROM r"})
    ran(toy, "--machines", "2", "--publish")
    assert asked() == ({"toy-depth", "toy-most"}, {"toy-depth", "toy-most"})


def test_a_scale_that_there_is_not_is_the_user_s_mistake_and_no_machine_s(
    checkout: Project,
) -> None:
    with pytest.raises(UnknownName, match="papr"):
        Sweep(checkout, "grace_hash_join", Asked(machines=2, scale="papr"))


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (BadParameter("no such geometry"), True),
        (DiskFull("the modelled device is too small for the files"), True),
        (DataCorrupted("user 0 found 1 match of 2"), False),
        (InvalidRun("replies left too late"), False),
        (ValueError("a bug"), False),
    ],
)
def test_what_is_no_machine_s_doing_is_a_failure_and_not_recorded(
    checkout: Project, monkeypatch: pytest.MonkeyPatch, error: Exception, is_refused: bool
) -> None:
    [(work, _), *_] = Sweep(checkout, "grace_hash_join", Asked(0, scale="smoke")).todo({}).values()

    def spoilt(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(experiments.find(work.study)), "run_point", spoilt)
    [outcome] = run_batch([work])
    assert bool(outcome.refused) is is_refused
    assert bool(outcome.failed) is not is_refused
    assert str(error) in outcome.refused + outcome.failed


def test_a_worker_that_has_seen_its_code_change_is_refused(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has imported what was there before, and would give that under the new code's digest."""
    [(work, _), *_] = Sweep(checkout, "grace_hash_join", Asked(0, scale="smoke")).todo({}).values()
    check(work, checkout)
    module = next(path for path in code._AT_BEGIN if path.match("grace_hash_join/run.py"))
    monkeypatch.setitem(code._AT_BEGIN, module, (1, 1))
    with pytest.raises(WrongWorker, match=r"run\.py: changed since this process began"):
        run_batch([work])


def test_what_the_model_refuses_is_counted_with_its_reason(whole: Whole) -> None:
    toy, out = whole.project, whole.out
    machines = pd.read_parquet(toy.build / "sweeps" / "toy.paper.sobol" / "machines.parquet")
    refused = machines[machines.state == "refused"]
    assert len(machines) == MACHINES + 1
    assert set(refused.unit) == {"12 KiB"}
    assert len(refused) == (machines.unit == "12 KiB").sum() > 0
    assert refused.reason.str.contains("map_unit").all()
    assert "map_unit" in out
    claims = pd.read_parquet(toy.build / "sweeps" / "toy.paper.sobol" / "claims.parquet")
    assert set(claims.machine) == set(machines.machine[machines.state == "finished"])
    assert machines.state[machines.machine == 0].tolist() == ["finished"]
    about = json.loads(published(toy)["about.json"])
    assert about["refused"] == len(refused)
    assert about["finished"] + about["refused"] == about["machines"]


def test_a_machine_s_first_point_is_run_before_the_others_of_the_machines_before(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is refused is known before its other points are handed out."""
    monkeypatch.setattr(Sweep, "kept", {})
    sweep = Sweep(checkout, "msdj_tpcc", Asked(machines=MACHINES))
    turn = {key: n for n, key in enumerate(sweep.todo({}))}
    assert turn.keys() == {key for keys in sweep.keys for key in keys}
    for before, after in pairwise(sweep.keys):
        assert turn[before[0]] < turn[after[0]] < turn[before[1]] < turn[after[1]]


def test_a_killed_client_takes_its_workers_with_it_and_is_continued(
    whole: Whole, toy: Project
) -> None:
    with started(toy, *sweep(toy, "--workers", "2")) as process:
        wait_for_lines(toy, 4, process)
        workers = workers_of(process)
        process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert workers
        assert not alive
    done = lines(toy)
    assert 4 <= len(done) < 2 * (MACHINES + 1)
    ran(toy, "--workers", "2")
    assert lines(toy)[: len(done)] == done  # nothing finished ran again
    assert_each_once(toy)
    assert published(toy) == whole.published
    assert left(toy) == []


@pytest.mark.slow
def test_a_scheduler_of_somebody_else_and_its_loss(
    whole: Whole, toy: Project, tmp_path: Path
) -> None:
    told = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        local = ("--host", "127.0.0.1", "--scheduler-file", str(told))
        scheduler = stack.enter_context(
            started(toy, DASK, "scheduler", *local, "--port", "0", "--no-dashboard")
        )
        worker = (sys.executable, "-m", "harness.runs.sweeps.worker", *local)
        stack.enter_context(started(toy, *worker, "--nthreads", "1", "--no-dashboard"))
        while not told.is_file():
            assert scheduler.poll() is None
            time.sleep(0.05)
        address = json.loads(told.read_text())["address"]
        with started(toy, *sweep(toy, "--scheduler", address)) as process:
            wait_for_lines(toy, 3, process)
            scheduler.kill()
            _, error = process.communicate(timeout=120)
        assert process.returncode == 2, error
        assert "run the same command again" in error
    done = lines(toy)
    assert 3 <= len(done) < 2 * (MACHINES + 1)
    ran(toy)
    assert lines(toy)[: len(done)] == done
    assert published(toy) == whole.published


def test_ctrl_c_keeps_what_is_finished(toy: Project, tmp_path: Path) -> None:
    with toy_world.gated(tmp_path, 2) as gate, started(toy, *sweep(toy), **gate) as process:
        wait_for_lines(toy, 2, process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 2, error
    assert "interrupted" in error
    assert len(lines(toy)) == 2


def test_a_worker_that_would_give_other_bits_is_refused(toy: Project, tmp_path: Path) -> None:
    """`dask worker` imports NumPy before harness: where NumPy has more to choose, it counts."""
    told = tmp_path / "scheduler.json"
    beyond = "import numpy, harness.same_bits as s; print(s.beyond())"
    clean = {k: v for k, v in toy_world.environment().items() if not k.startswith("NPY_")}
    said = subprocess.run(
        [sys.executable, "-c", beyond], env=clean, check=True, capture_output=True, text=True
    )
    if said.stdout.strip() == "[]":
        pytest.skip("this processor has nothing beyond the base")
    with ExitStack() as stack:
        local = ("--host", "127.0.0.1", "--scheduler-file", str(told))
        stack.enter_context(
            started(toy, DASK, "scheduler", *local, "--port", "0", "--no-dashboard")
        )
        worker = ("worker", *local, "--nthreads", "1", "--no-nanny", "--no-dashboard")
        stack.enter_context(started(toy, "env", "-u", "NPY_DISABLE_CPU_FEATURES", DASK, *worker))
        while not told.is_file():
            time.sleep(0.05)
        address = json.loads(told.read_text())["address"]
        assert "imported NumPy before harness" in ran(toy, "--scheduler", address, code=2)
    assert not lines(toy)


def test_a_pool_leaves_out_what_is_needless_by_then(checkout: Project) -> None:
    asked = Asked(machines=1, scale="smoke")
    todo = Sweep(checkout, "grace_hash_join", asked).todo({})
    works = [work for work, _ in todo.values()]
    found: list[str] = []
    with open_pool(1) as pool:
        for outcomes in pool.run(works, lambda key: len(found) > 2 and key != works[-1].key):
            assert not any(each.failed or each.refused for each in outcomes)
            found.extend(each.key for each in outcomes)
    assert len(found) == len(set(found))
    assert len(works) // 2 > len(found) > 3
    assert found[-1] == works[-1].key


def test_workers_that_end_before_they_are_there_are_told() -> None:
    """In a process of its own: Dask leaves in the environment what it gives to workers."""
    opens = """
import dask
from harness.runs.sweeps.pool import open_pool
if __name__ == "__main__":
    with dask.config.set({"distributed.nanny.pre-spawn-environ.PYTHONHOME": "/nowhere"}):
        with open_pool(1):
            pass
"""
    done = subprocess.run(
        [sys.executable, "-c", opens], check=False, capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert last == (
        "harness.errors.HarnessError: no workers at this machine: Nanny failed to start."
    ), done.stderr


def test_workers_keep_the_memory_that_points_give_back() -> None:
    """Those of a pool, and those that somebody starts for his own scheduler."""
    with open_pool(1) as pool:
        address = pool.client.scheduler.address
        worker = (sys.executable, "-m", "harness.runs.sweeps.worker", address)
        process = subprocess.Popen(
            [*worker, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"],
            stderr=subprocess.DEVNULL,
        )
        try:
            pool.client.wait_for_workers(2, timeout=60)
            told = pool.client.run(lambda: dict(os.environ))
        finally:
            process.terminate()
            process.wait(timeout=60)
    assert len(told) == 2
    for environment in told.values():
        assert int(environment["MALLOC_TRIM_THRESHOLD_"]) >= 256 << 20
        assert int(environment["MALLOC_MMAP_THRESHOLD_"]) >= 256 << 20


@pytest.mark.slow
def test_nobody_at_the_scheduler_s_address(toy: Project) -> None:
    out = ran(toy, "--scheduler", "tcp://127.0.0.1:1", code=2)
    assert "no workers at tcp://127.0.0.1:1" in out
