"""Sessions: keys that follow what a result depends on, bytes that do not depend on the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from conftest import LITTLE, describe

from harness.errors import BadParameter, HarnessError, MissingTool
from harness.paths import Project
from harness.probes import bpftrace
from harness.runs import code, places, session
from harness.runs.session import Options, open_session
from harness.system.files import write_atomically

SETTINGS = {
    "repetitions": "2",
    "read_buffers": "[1 MiB, 16 MiB]",
    "write_buffers": "[4 KiB, 64 KiB]",
    "users": "[1, 2]",
    "queue_depths": "[1]",
    "algorithms": "[grace, hybrid]",
    "variants": "{}",
}


def options(**more: Any) -> Options:
    return Options(scale="smoke", settings={**SETTINGS, **more.pop("settings", {})}, **more)


def published(project: Project) -> dict[str, bytes]:
    folders = (project.build / "runs",)
    found = (p for folder in folders for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(project.root)): p.read_bytes() for p in found}


def test_an_interrupted_run_publishes_the_same_bytes(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        session.run()
        session.publish()
    whole = published(checkout)
    assert len(whole) > 15
    (checkout.journal / "grace_hash_join" / "simulated" / "journal.jsonl").unlink()
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        run_batch = session.experiment.run_batch
        count = 0

        def fail_on_the_seventh(*arguments: Any) -> Iterator[Any]:
            nonlocal count
            for measured in run_batch(*arguments):
                count += 1
                if count == 7:
                    raise HarnessError("something broke")
                yield measured

        monkeypatch.setattr(session.experiment, "run_batch", fail_on_the_seventh)
        with pytest.raises(HarnessError, match="something broke"):
            session.run()
        assert 6 <= len(session.results.table) < len(session.points)
        with pytest.raises(BadParameter, match=r"\d+ of \d+ points are finished"):
            session.publish()
    assert published(checkout) == whole
    monkeypatch.undo()
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        session.run()
        session.publish()
    assert published(checkout) == whole


def test_a_run_with_another_profile_between_leaves_the_traces_of_this_one(
    checkout: Project,
) -> None:
    found = []
    for rate in ("", "100 MB/s", ""):
        changed = {"outer_rate": rate} if rate else {}
        with open_session(
            checkout, "grace_hash_join", "simulated", options(overrides=changed)
        ) as session:
            session.run()
            session.publish()
            place = session.place.traces
        found.append({path.name: path.read_bytes() for path in place.glob("*.parquet")})
    first, between, again = found
    assert first.keys() == between.keys()
    assert first == again != between


def test_a_profile_that_changes_while_points_run_is_noticed(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key says what the profile was at the begin, a device is made of what it is now."""
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        run_batch = session.experiment.run_batch
        profile = checkout.profiles / f"{session.bench.profile_name('hdd')}.yaml"
        before = profile.read_text()

        def edited(*arguments: Any) -> Iterator[Any]:
            other = before.replace("rpm: {value: ", "rpm: {value: 1", 1)
            write_atomically(profile, other.encode())  # whole, whoever reads it meanwhile
            assert profile.read_text() != before
            yield from run_batch(*arguments)

        monkeypatch.setattr(session.experiment, "run_batch", edited)
        with pytest.raises(HarnessError, match=r"hdd: its profile, or what .* changed since"):
            session.run()
        assert session.results.table.empty or "hdd" not in set(session.results.table.device)


def test_points_of_two_versions_of_a_server_are_not_published(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        whole = session.run()
        versions = [150014, *[150015] * (len(whole.table) - 1)]
        of_two = replace(whole, table=whole.table.assign(server_version=versions))
        monkeypatch.setattr(type(session), "results", property(lambda _: of_two))
        with pytest.raises(BadParameter, match=r"another version .*150014, 150015"):
            session.publish()
    assert published(checkout) == {}


def test_a_process_whose_code_has_changed_on_the_disk_records_nothing(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first point, and after one that ran meanwhile."""
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        reached = code.run_of(session.experiment, "simulated").files.values()
        [module] = [path for path in reached if path.match("grace_hash_join/run.py")]
        then = code._AT_BEGIN[module]
        monkeypatch.setitem(code._AT_BEGIN, module, (1, 1))
        with pytest.raises(HarnessError, match=r"run\.py: changed since this process began"):
            session.run()
        monkeypatch.setitem(code._AT_BEGIN, module, then)
        run_batch = session.experiment.run_batch

        def edited(*arguments: Any) -> Iterator[Any]:
            monkeypatch.setitem(code._AT_BEGIN, module, (1, 1))
            yield from run_batch(*arguments)

        monkeypatch.setattr(session.experiment, "run_batch", edited)
        with pytest.raises(HarnessError, match="changed since this process began"):
            session.run()
        assert session.results.table.empty


def test_what_is_edited_while_it_runs_is_not_what_its_results_are_of(checkout: Project) -> None:
    """DVC notes down what a stage depends on when that has ended."""
    name, tier = "grace_hash_join", "simulated"
    describe(checkout, name, tier, **LITTLE)
    table = places.published(checkout, name, tier).table
    known = checkout.published / "claims.yaml"
    for path, edit in (
        (checkout.params, lambda: describe(checkout, name, tier, repetitions=2)),
        (known, lambda: known.write_text(known.read_text() + "# another\n")),
    ):
        before = path.read_text()
        with open_session(checkout, name, tier) as session:
            session.run()
            edit()
            with pytest.raises(HarnessError, match="was edited since this run began"):
                session.publish()
            assert not table.exists()
            path.write_text(before)
            session.publish()
        table.unlink()


def test_workers_do_not_change_the_bytes(checkout: Project) -> None:
    """Which point joins and which repeats it is decided before anybody works."""
    found = []
    for workers in (1, 5):
        with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
            session.bench.parallel = workers
            results = session.run()
        folder = checkout.journal / "grace_hash_join" / "simulated"
        traces = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
        found.append((results.table.to_csv(), results.series, traces))
        (folder / "journal.jsonl").unlink()
    assert found[0] == found[1]
    assert found[0][2]


def keys(checkout: Project, **more: Any) -> set[str]:
    with open_session(checkout, "grace_hash_join", "simulated", options(**more)) as session:
        return {session._key(point) for point in session.points}


def test_a_result_counts_only_for_what_it_was_measured_with(checkout: Project) -> None:
    base = keys(checkout)
    assert base == keys(checkout)
    slower = keys(checkout, overrides={"outer_rate": "100 MB/s"})
    assert len(base & slower) == len(base) // 2  # the flash drive's results are not touched
    assert not base & keys(checkout, overrides={"cores": "4"})
    assert base < keys(checkout, settings={"repetitions": "3"})
    smaller = keys(checkout, settings={"input_io": "4 KiB"})
    assert not base & smaller


def test_another_version_of_what_computes_is_another_result(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dvc repro` runs a stage again for a new uv.lock: not for it to take what the journal has."""
    base = keys(checkout)
    monkeypatch.setattr(session, "_packages", lambda: {"numpy": "0.0.1"})
    assert not base & keys(checkout)


def test_what_nobody_traced_is_measured_again_with_bpftrace(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its points would else stay without what the kernel says of them, for ever."""

    def of_tier(tier: str) -> set[str]:
        with open_session(checkout, "sort_merge_join", tier) as opened:
            return {opened._key(point) for point in opened.points}

    monkeypatch.setattr(bpftrace, "program", lambda: "bpftrace")
    real, simulated = of_tier("emulated"), of_tier("simulated")

    def missing() -> str:
        raise MissingTool("bpftrace")

    monkeypatch.setattr(bpftrace, "program", missing)
    assert not real & of_tier("emulated")
    assert simulated == of_tier("simulated")


def test_a_result_counts_only_at_the_pace_that_it_was_measured_at(checkout: Project) -> None:
    """Software is not slowed down with a drive, so an emulated result depends on the slowdown."""

    def at(slowdown: int | dict[str, int]) -> dict[str, set[str]]:
        chosen = yaml.safe_load(checkout.params.read_text())
        chosen["sort_merge_join"]["emulated"]["bench"]["slowdown"] = slowdown
        checkout.params.write_text(yaml.safe_dump(chosen))
        with open_session(checkout, "sort_merge_join", "emulated") as session:
            return {
                device: {session._key(p) for p in session.points if p.cell.device == device}
                for device in session.bench.devices
            }

    both, apart, left_to_it = at(2), at({"hdd": 2, "ssd": 8}), at({"hdd": 2})
    assert both["hdd"] == apart["hdd"] == left_to_it["hdd"]
    assert not both["ssd"] & apart["ssd"]
    assert not both["ssd"] & left_to_it["ssd"]


def test_points_are_listed_once_and_in_order(checkout: Project) -> None:
    with open_session(checkout, "grace_hash_join", "simulated", options()) as session:
        names = [point.id for point in session.points]
        assert len(names) == len(set(names))
        again = session.experiment.points(session.parameters, session.bench)
        assert [point.id for point in again] == names


def test_parameters_that_are_not_as_described(checkout: Project) -> None:
    checkout.params.write_text("grace_hash_join: {simulated: {colour: red}}")
    with (
        pytest.raises(HarnessError, match=r"params\.yaml"),
        open_session(checkout, "grace_hash_join", "simulated", Options()),
    ):
        pass


@pytest.mark.parametrize("tier", ["simulated", "emulated"])
def test_a_tiers_drives_may_differ_from_their_profiles(checkout: Project, tier: str) -> None:
    """By `overrides` of the bench in params.yaml; who runs it has the last word."""
    path = checkout.root / "params.yaml"
    chosen = yaml.safe_load(path.read_text())
    chosen["grace_hash_join"][tier]["bench"]["devices"].pop("hdd")  # which has no such parameter
    path.write_text(yaml.safe_dump(chosen))
    plain = identity(checkout, tier, Options())
    chosen["grace_hash_join"][tier]["bench"]["overrides"] = {"read_latency": "9 us"}
    path.write_text(yaml.safe_dump(chosen))
    assert identity(checkout, tier, Options()) != plain
    asked = Options(overrides={"read_latency": "11 us"})
    both = identity(checkout, tier, asked)
    assert both != identity(checkout, tier, Options())
    chosen["grace_hash_join"][tier]["bench"]["overrides"] = {}
    path.write_text(yaml.safe_dump(chosen))
    assert identity(checkout, tier, asked) == both


def identity(project: Project, tier: str, asked: Options) -> str:
    """What a result on the SSD depends on."""
    with open_session(project, "grace_hash_join", tier, asked) as session:
        return str(session.bench.identity("ssd")["profile"])
