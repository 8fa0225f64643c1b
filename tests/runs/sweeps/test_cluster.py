"""The job files for SSH and Slurm, with stand-ins for ssh and srun that stay on this machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import toy_world
import yaml
from conftest import REPOSITORY
from test_sweep import (
    MACHINES,
    UNKNOWNS,
    assert_each_once,
    lines,
    published,
    ran,
    wait_for_lines,
)

from harness.paths import Project

pytestmark = pytest.mark.builds

CLUSTER = REPOSITORY / "hardware" / "cluster"
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    [[ $1 != --ntasks=* ]] || tasks=${1#--ntasks=}
    shift
done
for ((n = 0; n < tasks; n++)); do "$@" & done
trap 'kill $(jobs -p); wait; exit' TERM
wait
"""
SSH = f"""#!{sys.executable}
import os, signal, socket, subprocess, sys, threading

def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

def forward(listening, port):
    while True:
        one, _ = listening.accept()
        other = socket.create_connection(("127.0.0.1", port))
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pump, args=pair, daemon=True).start()

arguments = sys.argv[1:]
with open(os.environ["TOLD"], "a") as told:
    while arguments[0].startswith("-"):
        told.write(f"{{arguments[0]}} {{arguments[1]}}\\n")
        if arguments[0] == "-R":
            port, _, to = arguments[1].split(":")
            listening = socket.create_server(("127.0.0.1", int(port)))  # or it fails, as ssh does
            threading.Thread(target=forward, args=(listening, int(to)), daemon=True).start()
        del arguments[:2]
    told.write(f"host {{arguments[0]}}\\n")
program = subprocess.Popen(["bash", "-c", " ".join(arguments[1:])])
signal.signal(signal.SIGTERM, lambda *_: program.terminate())
sys.exit(program.wait())
"""
"""All hosts are this one; the worker's own port, which is forwarded to here, is there already."""


@pytest.fixture
def toy(checkout: Project, tmp_path: Path) -> Project:
    toy_world.furnish(checkout)
    (checkout.root / "hardware" / "unknowns" / "toy.yaml").write_text(yaml.safe_dump(UNKNOWNS))
    (checkout.root / ".venv").symlink_to(REPOSITORY / ".venv")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("ssh", SSH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return checkout


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    path = f"{tmp_path / 'programs'}:{os.environ['PATH']}"
    return {**toy_world.environment(), "PATH": path, "TOLD": str(tmp_path / "told"), **more}


def start(toy: Project, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=toy.root, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.slow
def test_the_slurm_job(toy: Project, tmp_path: Path) -> None:
    ran(toy)
    whole = published(toy)
    (toy.journal / "sweeps" / "toy" / "journal.jsonl").unlink()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = environment(tmp_path, SLURM_JOB_ID="7", SLURM_NTASKS="2", TMPDIR=str(temporary))
    command = [str(CLUSTER / "sweep.slurm"), "toy", "--machines", str(MACHINES)]
    with start(toy, command, env) as job:
        wait_for_lines(toy, 3, job)
        job.send_signal(signal.SIGTERM)  # the end of its time is near
        _, error = job.communicate(timeout=120)
    assert job.returncode == 143, error
    assert 3 <= len(lines(toy)) < 2 * (MACHINES + 1)
    with start(toy, command, env) as job:
        _, error = job.communicate(timeout=300)
    assert job.returncode == 0, error
    assert published(toy) == whole
    assert not list(toy.build.glob("scheduler-*"))
    assert not list(temporary.glob("tmp.*")), "the job's own; Dask keeps a folder"


def test_what_slurm_is_asked_for() -> None:
    """Directives come before the first command, or sbatch ignores them."""
    head, *_ = (CLUSTER / "sweep.slurm").read_text().partition("\nset -euo")
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.+)$", head, re.MULTILINE))
    assert set(asked) == {
        "job-name",
        "ntasks",
        "cpus-per-task",
        "mem-per-cpu",
        "time",
        "output",
        "signal",
    }
    assert asked["cpus-per-task"] == "1"  # a worker has one thread
    assert re.fullmatch(r"B:TERM@\d+", asked["signal"])  # to the script, which tells the client
    body = (CLUSTER / "sweep.slurm").read_text()[len(head) :]
    assert "#SBATCH" not in body


@pytest.mark.slow
def test_by_ssh(toy: Project, tmp_path: Path) -> None:
    ran(toy)
    whole = published(toy)
    (toy.journal / "sweeps" / "toy" / "journal.jsonl").unlink()
    port = free_port()
    env = environment(tmp_path, FLASHLAB_FOLDER=str(toy.root), FLASHLAB_PORT=str(port))
    command = [str(CLUSTER / "sweep-ssh"), "one:1 two:2", "toy", "--machines", str(MACHINES)]
    with start(toy, command, env) as job:
        _, error = job.communicate(timeout=300)
    assert job.returncode == 0, error
    assert published(toy) == whole
    assert_each_once(toy)
    told = (tmp_path / "told").read_text().splitlines()
    assert sorted(t for t in told if t.startswith("host")) == ["host one", "host two", "host two"]
    ways = [re.fullmatch(rf"-R (\d+):127\.0\.0\.1:{port}", line) for line in told]
    back = [int(way[1]) for way in ways if way]
    owns = [re.fullmatch(r"-L (\d+):127\.0\.0\.1:\1", line) for line in told]
    own = [int(way[1]) for way in owns if way]
    assert len(back) == len(own) == 3
    assert len({port, *back, *own}) == 7, "a port is one's"


@pytest.mark.parametrize("name", ["sweep.slurm", "sweep-ssh"])
def test_job_files_are_sound(name: str) -> None:
    path = CLUSTER / name
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
