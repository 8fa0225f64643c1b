"""go-tpc, another TPC-C driver: built from its Go module for the benchmark alone, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from harness.errors import HarnessError, MissingTool
from harness.system.programs import find_program

_MODULE: Final = "github.com/pingcap/go-tpc"
_VERSION: Final = "v1.0.12"
_GO: Final = "/usr/local/go/bin/go"
_TPMC: Final = re.compile(r"tpmC: ([\d.]+)")
_BUILD_LIMIT_S: Final = 900
_END_LIMIT_S: Final = 120


def built(folder: Path) -> Path:
    """The program in `folder`; built there if it is not. Raises MissingTool with the reason."""
    program = folder / "go-tpc"
    if program.is_file():
        return program
    go = shutil.which("go") or shutil.which(_GO)
    if go is None:
        raise MissingTool("Go is not installed: apt-get install golang")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(f"module flashlab\n\ngo 1.21\n\nrequire {_MODULE} {_VERSION}\n")
    done = subprocess.run(
        [
            *(find_program("env"), "GOTOOLCHAIN=local", go, "build", "-mod=mod"),
            *("-o", program.name, f"{_MODULE}/cmd/go-tpc"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=_BUILD_LIMIT_S,
    )
    if done.returncode or not program.is_file():
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MissingTool(f"{_MODULE} {_VERSION} cannot be built: {said}")
    return program


def run(
    program: Path, socket: Path, database: str, warehouses: int, threads: int, measured_s: int
) -> float:
    """Its TpmC on a loaded database, without keying and think times. Raises HarnessError.

    It has an option for a host and none for a socket: the address is written so that its driver
    reads all that comes before the socket as a password, which a private server does not ask for.
    """
    command = [str(program), "tpcc", "run", "--user", "root", "--db", database]
    command += ["--targets", f"none)/@unix({socket}", "--warehouses", str(warehouses)]
    command += ["--threads", str(threads), "--time", f"{measured_s}s"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=measured_s + _END_LIMIT_S
    )
    found = _TPMC.search(done.stdout)
    if done.returncode or found is None:
        said = (done.stderr + done.stdout).strip().splitlines()[-1:]
        raise HarnessError(f"go-tpc: {said[0] if said else 'it said nothing'}")
    return float(found[1])
