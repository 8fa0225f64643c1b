"""What a result depends on, as it is derived: all that a run executes, and nothing beside it."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import REPOSITORY

from harness import _core, experiments
from harness.errors import DataFolderError
from harness.paths import Project
from harness.runs import code
from harness.system import core_sources
from harness.system.documents import read_yaml
from harness.tiers.options import BenchParameters

HARNESS = REPOSITORY / "harness"
PROFILES = REPOSITORY / "hardware" / "profiles"
SIMULATED = [name for name in experiments.names() if "simulated" in experiments.find(name).tiers]
MEASURED = [
    (name, tier)
    for name in experiments.names()
    for tier in experiments.find(name).tiers
    if tier != "simulated"
]
ELSEWHERE = (
    "drives.guard",
    "drives.wear",
    "drives.preparation",
    "probes",
    "dbms.mysql",
    "commands",
)
"""What no run in virtual time reaches."""

TRACED = """
import sys
from pathlib import Path
from harness import experiments
from harness.paths import find_project
from harness.runs.session import Options, open_session

name = sys.argv[1]
executed = set()
profiles = find_project().profiles
def opened(event, arguments):
    if event == "open" and str(arguments[0]).startswith(str(profiles)):
        executed.add(str(arguments[0]))
sys.addaudithook(opened)
with open_session(find_project(), name, "simulated", Options(scale="smoke")) as session:
    first = {}
    for point in session.points:  # one of each kind, and of each device
        first.setdefault((point.values.get("kind"), point.values["device"]), point)
    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_name != "<module>":
            executed.add(frame.f_code.co_filename)
    sys.setprofile(watch)
    for point in first.values():
        session.experiment.run_point(point, session.parameters, session.bench, session.project.raw)
    sys.setprofile(None)
print("\\n".join(sorted(executed)))
"""


@pytest.mark.parametrize("name", SIMULATED)
def test_whatever_a_run_executes_is_in_its_key(name: str) -> None:
    """The oracle: whose functions are called, and which profiles read, for a point of each kind."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED, name],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    executed = {path for path in done.stdout.splitlines() if path.startswith(str(HARNESS))}
    read = {path for path in done.stdout.splitlines() if path.startswith(str(PROFILES))}
    assert executed, "the run executed nothing of ours"
    assert read, "the run has no drive"
    experiment = experiments.find(name)
    run = code.run_of(experiment, "simulated")
    known = {str(path) for path in run.files.values()}
    assert executed - {experiment_file(name)} <= known
    assert read <= {str(path) for path in profiles_of(name, "simulated").values()}


def profiles_of(name: str, tier: str) -> dict[str, Path]:
    section = read_yaml((REPOSITORY / "params.yaml").read_text())[name][tier]
    run = code.run_of(experiments.find(name), tier)
    return code.profiles_of(PROFILES, run.words | code.words_of(section))


@pytest.mark.parametrize(("name", "tier"), MEASURED)
def test_a_measured_result_depends_on_the_drives_that_it_is_of(name: str, tier: str) -> None:
    """And on no other: the profile of another study's drive may change without a run of hours."""
    section = read_yaml((REPOSITORY / "params.yaml").read_text())[name][tier]
    bench = BenchParameters.model_validate(section.get("bench", {}))
    drives = {f"{profile}.yaml" for profile in bench.devices.values()}
    assert set(profiles_of(name, tier)) == drives


def test_who_lists_profiles_depends_on_all(tmp_path: Path) -> None:
    for name in ("one.yaml", "hosts/two.yaml", "generic/three.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(code.profiles_of(tmp_path, {"two", "three"})) == ["hosts/two.yaml"]
    lists = code.reached(["harness.experiments.device_models.data_sheets"]).words
    assert list(code.profiles_of(tmp_path, lists)) == ["hosts/two.yaml", "one.yaml"]


def experiment_file(name: str) -> str:
    """It, and what all studies inherit, only hand a point on to the function in `runs`."""
    return str(HARNESS / "experiments" / name / "__init__.py")


@pytest.mark.parametrize("name", SIMULATED)
def test_what_a_run_does_not_reach_is_not_in_its_key(name: str) -> None:
    experiment = experiments.find(name)
    for reached in (code.run_of(experiment, "simulated"), code.shown_of(experiment)):
        for module in reached.files:
            assert not module.startswith(tuple(f"harness.{part}" for part in ELSEWHERE)), module


@pytest.mark.parametrize(("name", "tier"), MEASURED)
def test_what_is_measured_depends_on_no_model_of_kernel_or_database(name: str, tier: str) -> None:
    parts = core_sources.parts_behind(code.run_of(experiments.find(name), tier).core)
    assert "host" in parts
    assert not {"kernel", "dbms"} & set(parts)


@pytest.mark.parametrize("name", [name for name in SIMULATED if name != "grace_hash_join"])
def test_only_who_joins_records_depends_on_the_join(name: str) -> None:
    """All studies pass through the tier, which can hold records and makes none."""
    reached = code.run_of(experiments.find(name), "simulated")
    core = core_sources.described()
    parts = {part for used in reached.core for part in core["names"].get(used, core["parts"])}
    parts |= {beside for part in parts for beside in core["parts"][part]["includes"]}
    assert "harness.workloads.tpch" not in reached.files
    assert "join" not in parts


@pytest.mark.parametrize("tier", ["emulated", "hardware"])
def test_real_runs_reach_their_servers_probes_and_statements(tier: str) -> None:
    files = set(code.run_of(experiments.find("msdj_tpcc"), tier).files)
    assert {"harness.dbms.mysql", "harness.probes.scripts/block_io.bt"} <= files
    assert "harness.workloads.tpcc/procedures.sql" in files
    assert ("harness.devices.live.daemon" in files) == (tier == "emulated"), "started with -m"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a run that imports some of it, in some of the ways there are."""
    folder = tmp_path / "apart"
    folder.mkdir()
    files = {
        "__init__.py": "",
        "run.py": "from apart import used\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from apart import only_a_type\n"
        "def go():\n    from . import late\n    return ['-m', 'apart.started']\n",
        "used.py": "from harness import _core\n_core.merge_plan\n",
        "late.py": "",
        "started.py": "",
        "only_a_type.py": "",
        "beside.py": "",
        "statements.sql": "SELECT 1",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "apart", raising=False)
    for each in (code._file, code._folder, code._read):
        each.cache_clear()
    return folder


def key() -> str:
    code._read.cache_clear()
    return code.reached(["apart.run"]).digest()


@pytest.mark.parametrize("name", ["run.py", "used.py", "late.py", "started.py", "statements.sql"])
def test_a_change_of_what_is_reached_changes_the_key(package: Path, name: str) -> None:
    before = key()
    assert key() == before
    (package / name).write_text((package / name).read_text() + "\n# changed\n")
    assert key() != before


@pytest.mark.parametrize("name", ["only_a_type.py", "beside.py"])
def test_a_change_of_anything_else_does_not(package: Path, name: str) -> None:
    before = key()
    (package / name).write_text("changed = True\n")
    assert key() == before


@pytest.mark.parametrize("name", code.GUARDS)
def test_a_better_guard_makes_no_measurement_another_code_s(name: str) -> None:
    """No number passes through one: none knows of a study, a tier, a probe or a record."""
    studies = [experiments.find(each) for each in experiments.names()]
    runs = [code.run_of(each, tier) for each in studies for tier in each.tiers]
    reaching = [found for found in runs if name in found.files]
    assert reaching, "of a guard that there is"
    for found in reaching:
        others = {each: path for each, path in found.files.items() if each != name}
        assert found.digest() == replace(found, files=others).digest()
    for each in code.reached([name]).files:
        assert not each.startswith(("harness.experiments", "harness.tiers", "harness.probes"))


def test_a_name_of_the_core_stands_on_its_parts() -> None:
    core = core_sources.described()
    assert "dbms" in core["names"]["merge_plan"]
    assert "live" not in core["names"]["merge_plan"]
    assert "dbms" not in core["names"]["VirtualStorage"]
    assert "live" in core["names"]["LiveDevice"]
    assert "live" not in core["names"]["VirtualStorage"]
    assert core_sources.digest(["merge_plan"]) != core_sources.digest(["LiveDevice"])
    everything = core_sources.digest(["never bound"])
    assert everything not in {core_sources.digest([name]) for name in core["names"]}


def test_a_change_of_one_binding_concerns_who_is_bound_there(tmp_path: Path) -> None:
    copy = tmp_path / "core"
    shutil.copytree(HARNESS / "core", copy)
    describe = runpy.run_path(str(copy / "sources.py"))["describe"]
    before = describe(copy)
    live = copy / "bind" / "live.cpp"
    live.write_text(live.read_text() + "// changed\n")
    after = describe(copy)
    changed = {part for part in after["parts"] if before["parts"][part] != after["parts"][part]}
    assert before["always"] == after["always"]
    assert before["names"] == after["names"]
    assert {name for name, parts in after["names"].items() if changed & set(parts)} == {
        *("LiveDevice", "FuseFile", "Ublk", "probe_path"),
    }


def test_every_bound_name_is_known() -> None:
    bound = {name for name in dir(_core) if not name.startswith("_")}
    assert bound <= set(core_sources.described()["names"])


def test_a_core_of_other_sources_is_refused(tmp_path: Path) -> None:
    core_sources.check(HARNESS / "core")
    other = tmp_path / "core"
    for folder in ("bind", "base"):
        (other / folder).mkdir(parents=True)
    (other / "base" / "changed.cpp").write_text("int changed;\n")
    (other / "CMakeLists.txt").write_text("")
    (other / "sources.py").write_bytes((HARNESS / "core" / "sources.py").read_bytes())
    with pytest.raises(DataFolderError, match="run make env"):
        core_sources.check(other)


def test_the_digests_on_file_are_those_of_the_code() -> None:
    """Otherwise `dvc status` of a fresh clone speaks of code that nobody has."""
    project = Project(REPOSITORY)
    for name in experiments.names():
        experiment = experiments.find(name)
        wanted = {tier: code.of_tier(project, experiment, tier) for tier in experiment.tiers}
        if experiment.agreement:
            wanted["agreement"] = code.of_agreement(project, experiment)
        for what, digests in wanted.items():
            path = REPOSITORY / "data" / "code" / f"{name}.{what}.json"
            assert json.loads(path.read_text()) == digests, f"{path.name}: run harness digests"


def test_what_writes_tables_and_chooses_points_is_in_what_is_shown() -> None:
    """An edit of how numbers are written would else leave `make reproduce` with nothing to do."""
    files = code.shown_of(experiments.find("delayed_trim")).files
    for name in ("published", "parameters", "places", "session", "journal"):
        assert f"harness.runs.{name}" in files


@pytest.mark.parametrize("name", [n for n in experiments.names() if experiments.find(n).agreement])
def test_an_agreement_depends_on_the_simulation_that_it_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiments.find(name)
    asked: list[set[str]] = []

    def reached(roots: list[str]) -> code.Reached:
        asked.append(set(roots))
        return code.Reached({}, frozenset(), frozenset())

    monkeypatch.setattr(code, "reached", reached)
    code.of_agreement(Project(REPOSITORY), experiment)
    assert experiment.runs["simulated"].__module__ in asked[0]
    assert "harness.tiers.simulated" in asked[0]


def test_the_core_is_built_again_for_each_kind_of_source() -> None:
    """Else `make env` would do nothing where `harness digests` says that it has to be run."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    keys = {Path(key["file"]).suffix for key in settings["tool"]["uv"]["cache-keys"]}
    kinds = runpy.run_path(str(HARNESS / "core" / "sources.py"))["_KINDS"]
    assert set(kinds) <= keys


def test_a_profile_that_all_studies_are_asked_for_is_in_their_digests(tmp_path: Path) -> None:
    """Section `notebook` of params.yaml may name other drives, by name or by file."""
    project = Project(tmp_path)
    project.params.write_text(
        "notebook: {devices: {ssd: samsung_850pro_256gb, hdd: /lab/mine.yaml}}"
    )
    words = code._asked_words(project)
    assert {"samsung_850pro_256gb", "mine"} <= words
    project.params.write_text("{}")
    assert code._asked_words(project) == frozenset()
