"""All tests of database servers, on the oldest and the newest series that there are of each.

`make servers` fetches the servers; what cannot be had skips with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

from harness.dbms import mysql, postgres, private
from harness.errors import TargetError

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.root]

MYSQL = (
    "tests/dbms/test_mysql.py",
    "tests/dbms/test_private.py",
    "tests/workloads/test_tpcc_real.py",
    "tests/experiments/test_msdj_crashes.py",
    "tests/experiments/test_msdj_tpcc_real.py",
)
POSTGRES = (
    "tests/dbms/test_postgres.py",
    "tests/dbms/test_private.py",
    "tests/dbms/test_temp_file_preallocation.py",
    "tests/experiments/test_trim_fallocate_real.py",
    "tests/experiments/test_sort_merge_join_real.py",
)
SERIES = {
    "mysql-9": MYSQL,
    "mariadb-10.11": MYSQL,
    "mariadb-11": MYSQL,
    "postgresql-15": POSTGRES,
    "postgresql-18": POSTGRES,
}
LIMIT_S = 3600
WHICH = (
    "from harness.dbms import mysql, postgres\n"
    "print(mysql.find_programs().server.parent, postgres.find_binaries(), sep='\\n')"
)


def programs_of(series: str) -> Path:
    """Where its programs lie; skips the test if they are not there."""
    note = REPOSITORY / "build" / "servers" / f"{series}.json"
    if not note.is_file():
        pytest.skip(f"there is no {series}: make servers")
    found = json.loads(note.read_text())
    if "missing" in found:
        pytest.skip(f"{series} cannot be had: {found['missing']}")
    folder = Path(found["programs"])
    try:
        kind = postgres._KIND if series.startswith("postgresql") else mysql._KIND
        private.account(kind).check_reachable(folder / "server")
    except TargetError as error:
        pytest.skip(f"{series}: {error}")
    return folder


@pytest.mark.parametrize("series", SERIES)
def test_everything_holds_on(series: str) -> None:
    folder = programs_of(series)
    chosen = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    which = subprocess.run(
        [sys.executable, "-c", WHICH],
        env=chosen,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(folder) in which.stdout.splitlines()
    selected = ["-m", "not slow and not clock", "-p", "no:cacheprovider", *SERIES[series]]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", *selected],
        cwd=REPOSITORY,
        env=chosen,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{series}:\n{done.stdout[-20_000:]}{done.stderr[-2_000:]}"
