"""The command line: bad input is one line that says what to do, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY, describe, loop_device, mounted, need

from harness.paths import Project
from harness.runs import journal as journals

Command = Callable[..., subprocess.CompletedProcess[str]]

SMALL = [
    "--scale",
    "smoke",
    "--set",
    "repetitions=1",
    "--set",
    "read_buffers=[4 MiB]",
    "--set",
    "write_buffers=[4 KiB]",
    "--set",
    "users=[1]",
    "--set",
    "queue_depths=[1]",
    "--set",
    "algorithms=[grace]",
    "--set",
    "variants={}",
]


def files(root: Path) -> dict[str, int]:
    """All files below a folder, and when they were changed."""
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}


def refused(command: Command, checkout: Project, *arguments: str) -> str:
    """The message of a command that must fail and write nothing."""
    before = files(checkout.root)
    done = command(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("harness: ")
    assert files(checkout.root) == before
    return lines[0]


RUN = ("run", "grace_hash_join")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "quick_sort"), "unknown experiment 'quick_sort'; known: delayed_trim"),
        ((*RUN, "--tier", "dreamed"), "known: emulated, hardware, simulated"),
        ((*RUN, "--device", "hdd=floppy"), "unknown profile 'floppy'; known: cosmos"),
        ((*RUN, "--device", "tape=seagate_250gb"), "unknown device 'tape'; known: hdd, ssd"),
        ((*RUN, "--set", "colour=red"), "unknown parameter 'colour'"),
        ((*RUN, "--set", "colour"), "write it as NAME=VALUE"),
        ((*RUN, "--set", "users=many"), "users"),
        ((*RUN, "--set", "users=[0]"), "users"),
        ((*RUN, "--set", "write_buffer=4"), "'4 KiB'"),
        ((*RUN, "--set", "read_buffers=[1 MB/s]"), "unknown unit"),
        ((*RUN, "--set", "algorithms=[bubble]"), "known: grace, hybrid"),
        ((*RUN, "--set", "users=2024-99-99"), "cannot be read"),
        ((*RUN, "--set", "users=" + "[" * 5000), "cannot be read"),
        ((*RUN, "--override", "outer_rate=2024-99-99"), "cannot be read"),
        (
            ("run", "msdj_tpcc", "--set", "scale=[red]"),
            "parameter scale: a value of the wrong kind",
        ),
        (("run", "sort_merge_join", "--set", "scale={a: 1}"), "a value of the wrong kind"),
        ((*RUN, "--device", f"hdd={'x' * 5000}"), "File name too long"),
        (("agreement", "grace_hash_join"), "no results here; get it by dvc pull"),
        (("machine", "dreamed"), "unknown tier that measures 'dreamed'; known: emulated, hardware"),
        (("machine", "simulated"), "known: emulated, hardware"),
        (("machine", "emulated", "quick_sort"), "study of the emulated pipeline 'quick_sort'"),
        (("machine", "emulated", "../x"), "study of the emulated pipeline '../x'"),
        (("machine", "x" * 5000), "unknown tier that measures 'xxx"),
        (("notebook", "x" * 5000), "File name too long"),
        (("data-sheet", "\x1b[31m"), "unknown profile '\\x1b[31m'"),
        (("fit", "x" * 5000), "File name too long"),
        (("probe", "check", "data"), "is not a file"),
        (("probe", "analyse", "data"), "is not a file"),
        ((*RUN, "--scale", "huge"), "known: paper, small, smoke"),
        ((*RUN, "--override", "speed=1 MB/s"), "unknown profile parameter 'speed'"),
        ((*RUN, "--override", "outer_rate=fast"), "outer_rate"),
        ((*RUN, "--file", "x"), "--file and --drive are for tier hardware"),
        ((*RUN, "--tier", "hardware"), "--file PATH"),
        ((*RUN, "--tier", "hardware", "--file", "data"), "is a directory"),
        ((*RUN, "--tier", "hardware", "--file", "params.yaml"), "was not made by this program"),
        ((*RUN, "--tier", "hardware", "--file", "/nonesuch/x"), "there is no folder"),
        ((*RUN, "--tier", "hardware", "--file", "/dev/null"), "neither a file nor a block"),
        (("notebook", "99_nothing"), "known: 00_start_here"),
        (("data", "huge"), "unknown scale"),
        (("bench", "--only", "nothing"), "unknown benchmark group"),
    ],
)
def test_bad_input(
    harness_here: Command, checkout: Project, arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused(harness_here, checkout, *arguments)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda p: p.update(colour={"value": 1, "prior": "?"}), "colour"),
        (lambda p: p["average_seek"].update(value="8.5"), "8.5 ms"),
        (lambda p: p["heads"].update(value=0), "heads"),
    ],
)
def test_bad_profiles(
    harness_here: Command,
    checkout: Project,
    edit: Callable[[Any], None],
    says: str,
) -> None:
    path = checkout.profiles / "mine.yaml"
    data = yaml.safe_load((checkout.profiles / "seagate_250gb.yaml").read_text())
    edit(data["parameters"])
    path.write_text(yaml.safe_dump(data))
    assert says in refused(harness_here, checkout, *RUN, "--device", "hdd=mine")


def test_bad_input_from_outside(harness_command: Command, checkout: Project) -> None:
    """The same through the installed command."""
    assert "known: delayed_trim" in refused(harness_command, checkout, "run", "quick_sort")


def test_outside_of_a_checkout(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("harness")), "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "not inside a checkout" in done.stderr


def test_a_run_publishes_and_a_second_one_runs_nothing(
    harness_here: Command, checkout: Project
) -> None:
    settings = dict(text.split("=", 1) for text in SMALL[3::2])
    little = {name: yaml.safe_load(value) for name, value in settings.items()}
    describe(checkout, "grace_hash_join", "simulated", scale="smoke", **little)
    first = harness_here(*RUN)
    assert first.returncode == 0, first.stderr
    journal = checkout.journal / "grace_hash_join" / "simulated" / "journal.jsonl"
    recorded = journal.read_bytes()
    published = {
        p: p.read_bytes()
        for folder in (checkout.results, checkout.figures, checkout.metrics, checkout.raw)
        for p in folder.rglob("*")
        if p.is_file()
    }
    assert any(p.suffix == ".svg" for p in published)
    assert any(p.suffix == ".csv" for p in published)
    second = harness_here(*RUN)
    assert second.returncode == 0
    assert journal.read_bytes() == recorded
    assert all(path.read_bytes() == data for path, data in published.items())


def test_ctrl_c_keeps_what_is_finished_and_the_next_run_continues(
    harness_command: Command, checkout: Project
) -> None:
    more = [*SMALL, "--set", "repetitions=4"]
    journal = checkout.journal / "grace_hash_join" / "simulated" / "journal.jsonl"
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("harness")), *RUN, *more],
        cwd=checkout.root,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (journal.is_file() and journal.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert "points are finished and kept" in stderr.splitlines()[-1]
    lines = journal.read_text().splitlines()
    assert 3 <= len(lines) < 24
    assert all(json.loads(line.split(" ", 1)[1]) for line in lines)
    again = harness_command(*RUN, *more)
    assert again.returncode == 0, again.stderr
    assert journal.read_text().splitlines()[: len(lines)] == lines
    assert len(journal.read_text().splitlines()) == 24


def test_the_same_experiment_twice_at_once_computes_every_point_once(checkout: Project) -> None:
    """The second one waits, says for whom, and finds points done, even if the first is killed."""
    more = [*SMALL, "--set", "repetitions=4"]
    journal = checkout.journal / "grace_hash_join" / "simulated" / "journal.jsonl"

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("harness")), *RUN, *more],
            cwd=checkout.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start()
    deadline = time.monotonic() + 120
    while not (journal.is_file() and journal.read_bytes().count(b"\n") >= 1):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # it shall not be done before the others have begun
    others = [start(), start()]
    for process in others:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"is being run by process {first.pid}: waiting for it" in said
    first.kill()
    first.communicate(timeout=60)
    for process in others:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    # The killed one may have been in the middle of a line, which then does not count.
    lines = journal.read_text(errors="replace").splitlines()
    keys = [entry.key for entry in map(journals._parse, lines) if entry]
    assert len(keys) == len(set(keys)) == 24


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_run_removes_the_target(
    checkout: Project, tmp_path: Path, which: signal.Signals
) -> None:
    target = tmp_path / "target"
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("harness")),
            *RUN,
            "--tier",
            "hardware",
            "--file",
            str(target),
            *SMALL,
            "--set",
            "repetitions=1000",
        ],
        cwd=checkout.root,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not target.exists():
        if process.poll() is not None:
            _, stderr = process.communicate()
            if "O_DIRECT" in stderr:
                pytest.skip("the file system of the test's folder has no O_DIRECT")
            pytest.fail(stderr)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(which)
    if which == signal.SIGHUP:  # a shell says it, and the kernel when the shell has ended
        process.send_signal(which)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert not target.exists()


# DuckDB makes a RuntimeError of a KeyboardInterrupt that comes while it works.
_IN_A_QUERY = """
import duckdb, os, signal, threading
from harness.commands import main as cli
def query(**_):
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    alone = duckdb.connect(config={"threads": 1})
    alone.execute("select count(*) from range(1_000_000_000_000)").fetchall()
cli.app = query
cli.main()
"""


def assert_interrupted(program: str, *arguments: str) -> None:
    """A Python program that calls the command line and interrupts itself."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "harness: interrupted: nothing was left half done; run again to continue"
    ]


def test_a_signal_in_a_query_is_one_line() -> None:
    assert_interrupted(_IN_A_QUERY)


# Typer makes an exit code of its own of a KeyboardInterrupt in a command.
_IN_A_COMMAND = """
import os, signal, sys, threading, time
from harness.commands import main as cli
@cli.app.command("wait-for")
def wait_for(which: str) -> None:
    threading.Timer(0.2, os.kill, [os.getpid(), signal.Signals[which]]).start()
    time.sleep(60)
sys.argv = ["harness", "wait-for", sys.argv[1]]
cli.main()
"""


@pytest.mark.parametrize("which", ["SIGINT", "SIGTERM"])
def test_a_signal_in_any_command_is_one_line(which: str) -> None:
    assert_interrupted(_IN_A_COMMAND, which)


def test_a_lost_terminal_is_told_twice_and_ends_a_run_once(harness_here: Command) -> None:
    signal.signal(signal.SIGHUP, lambda *_: None)  # or we would end if the command did not heed it
    assert harness_here("--version").returncode == 0
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)


def test_a_run_that_shall_go_on_without_a_terminal_does(harness_here: Command) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    assert harness_here("--version").returncode == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.root
def test_a_read_only_data_folder(harness_command: Command, checkout: Project) -> None:
    need("mount")
    data = checkout.root / "data"
    subprocess.run(["mount", "--bind", "-o", "ro", str(data), str(data)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(data)], check=True)
    try:
        done = harness_command(*RUN, *SMALL)
    finally:
        subprocess.run(["umount", str(data)], check=True)
    assert done.returncode == 2
    assert "cannot write to" in done.stderr.splitlines()[-1]
    assert not checkout.journal.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; see the test above")
def test_a_folder_without_permission(harness_command: Command, checkout: Project) -> None:
    data = checkout.root / "data"
    data.chmod(0o555)
    try:
        done = harness_command(*RUN, *SMALL)
    finally:
        data.chmod(0o755)
    assert done.returncode == 2
    assert "cannot write to" in done.stderr.splitlines()[-1]


@pytest.mark.root
def test_a_full_disk_under_the_target(
    harness_here: Command, checkout: Project, tmp_path: Path
) -> None:
    with loop_device(tmp_path, 24 << 20) as device, mounted(device, tmp_path / "full") as folder:
        message = refused(
            harness_here,
            checkout,
            *RUN,
            "--tier",
            "hardware",
            "--file",
            str(folder / "x"),
            *SMALL,
        )
        assert "free" in message
        assert [p.name for p in folder.iterdir()] == ["lost+found"]


@pytest.mark.root
def test_a_mounted_target(harness_here: Command, checkout: Project, tmp_path: Path) -> None:
    with loop_device(tmp_path, 512 << 20) as device, mounted(device, tmp_path / "m"):
        message = refused(
            harness_here, checkout, *RUN, "--tier", "hardware", "--file", str(device), *SMALL
        )
        assert "is mounted at" in message


@pytest.mark.root
def test_a_target_too_small(harness_here: Command, checkout: Project, tmp_path: Path) -> None:
    with loop_device(tmp_path, 4 << 20) as device:
        message = refused(
            harness_here, checkout, *RUN, "--tier", "hardware", "--file", str(device), *SMALL
        )
        assert "needs" in message


def test_the_list_and_the_help(harness_here: Command) -> None:
    listed = harness_here("list")
    assert "grace_hash_join" in listed.stdout
    assert "seagate_250gb" in listed.stdout
    assert harness_here("--help").returncode == 0
    assert harness_here("doctor").returncode == 0


@pytest.mark.slow  # `make reproduce SCALE=smoke`, which CI runs, too, executes them in its pipeline
def test_notebooks_execute(harness_command: Command, checkout: Project) -> None:
    """Every notebook, by papermill, in an empty checkout at the smallest scale."""
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text())
    for study in params["pipeline"]["simulated"]:
        params[study]["simulated"]["parameters"]["scale"] = "smoke"
    for name in ("grace_hash_join", "sort_merge_join"):
        params[name]["simulated"]["parameters"]["repetitions"] = 1
    # Real power cuts, on a real server: two of them are enough here.
    params["msdj_crashes"]["emulated"]["parameters"].update(modes=["oj_dwb"], batches=1, cuts=2)
    checkout.params.write_text(yaml.safe_dump(params))
    for path in sorted(checkout.notebooks.glob("*.ipynb")):
        done = harness_command("notebook", path.stem, timeout_s=600)
        assert done.returncode == 0, done.stderr[-3000:]
        page = Path(done.stdout.rpartition("executed: ")[2].strip())
        assert page.parent == checkout.report
        assert "Traceback" not in page.read_text()
    report = harness_command("report")
    assert report.returncode == 0, report.stderr
    assert "index.html" in report.stdout
    html = (checkout.report / "index.html").read_text()
    assert html.count("<svg") >= 8
    shutil.rmtree(checkout.report)


def test_others_emulated_results_are_laid_beside_the_model(
    harness_here: Command, checkout: Project
) -> None:
    """By whoever has cloned them: that takes no device."""
    shutil.copytree(REPOSITORY / "data" / "results", checkout.results)
    done = harness_here("agreement", "delayed_trim", "--publish")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    [handling] = [line for line in lines if line[:2] == ["board", "handling_us"]]
    assert handling[2:] == ["6", "1.000", "1.000", "1.000", "100%"]
    [judged] = [line for line in lines if line[:1] == ["dt-writes-wait"]]
    assert len(judged) > 4, done.stdout
    for name in ("csv", "modelled.csv", "modelled.series.json"):
        assert (checkout.results / f"delayed_trim.agreement.{name}").is_file()
