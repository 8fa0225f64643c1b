"""The inputs: real rows, checked, made whole or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from live_world import eventually

from harness import _core
from harness.errors import DataCorrupted, UnknownName
from harness.workloads import records, tpch
from harness.workloads.tpch import JoinInputs


def test_rows_are_those_of_tpch(smoke: JoinInputs) -> None:
    assert len(smoke.orders) == 15_000
    assert len(smoke.lineitem) == 60_175  # of dbgen at scale factor 0.01
    assert len(np.unique(smoke.orders["key"])) == 15_000
    assert np.isin(smoke.lineitem["key"], smoke.orders["key"]).all()
    per_order = np.unique(smoke.lineitem["key"], return_counts=True)[1]
    assert per_order.min() == 1
    assert per_order.max() == 7


def test_signatures_hold(smoke: JoinInputs) -> None:
    rows = smoke.orders
    columns = [np.ascontiguousarray(rows[n]) for n in ("key", "row", "first", "second")]
    assert (_core.record_signatures(*columns) == rows["signature"]).all()


def test_expand_keeps_content_and_pads_with_zeros(smoke: JoinInputs) -> None:
    data = records.expand(smoke.orders[:33], 4096)
    assert data.size == 8192
    rows = data[: 33 * 128].reshape(33, 128)
    assert (rows[:, :32].reshape(-1).view(records.CONTENT) == smoke.orders[:33]).all()
    assert not rows[:, 32:].any()
    assert not data[33 * 128 :].any()


def test_a_changed_file_is_refused(smoke: JoinInputs, raw: Path, tmp_path: Path) -> None:
    shutil.copytree(raw / "tpch", tmp_path / "tpch")
    file = tmp_path / "tpch" / "smoke" / "orders.records"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataCorrupted, match="delete"):
        tpch.join_inputs(tmp_path, "smoke")


def test_a_file_that_changes_is_checked_again(smoke: JoinInputs, raw: Path, tmp_path: Path) -> None:
    """Although it was read before: a process checks what has not changed once."""
    shutil.copytree(raw / "tpch", tmp_path / "tpch")
    before = tpch.join_inputs(tmp_path, "smoke")
    assert tpch.join_inputs(tmp_path, "smoke").orders is before.orders
    file = tmp_path / "tpch" / "smoke" / "orders.records"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    changed = file.with_name("changed")
    changed.write_bytes(data)
    changed.replace(file)
    with pytest.raises(DataCorrupted, match="delete"):
        tpch.join_inputs(tmp_path, "smoke")


def test_unknown_scale() -> None:
    with pytest.raises(UnknownName, match="paper, small, smoke"):
        tpch.scale_factor("huge")


def test_nothing_is_left_of_an_attempt_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, table: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(tpch, "_convert", broken)
    with pytest.raises(KeyboardInterrupt):
        tpch.join_inputs(tmp_path, "smoke")
    assert list((tmp_path / "tpch").iterdir()) == []


def test_what_a_killed_maker_has_left_goes_with_the_next(tmp_path: Path) -> None:
    for left in (".making-dead", ".ready-.making-dead"):
        (tmp_path / "tpch" / left).mkdir(parents=True)
        (tmp_path / "tpch" / left / "orders.records").write_bytes(b"half of it")
    tpch.join_inputs(tmp_path, "smoke")
    assert [path.name for path in (tmp_path / "tpch").iterdir()] == ["smoke"]


_MAKER = """
import sys
from pathlib import Path
from harness.workloads import tpch
sys.executable = sys.argv[1]  # beside which tpchgen-cli lies
tpch.generate(Path(sys.argv[2]), 1.0)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="nothing lets the kernel end it")
def test_a_generator_ends_with_its_maker(tmp_path: Path) -> None:
    """Or it would go on to write what nobody deletes."""
    tool, told = tmp_path / "tpchgen-cli", tmp_path / "told"
    tool.write_text(f"#!/bin/sh\necho $$ > {told}.part && mv {told}.part {told}\nexec sleep 600\n")
    tool.chmod(0o755)
    command = [sys.executable, "-c", _MAKER, str(tmp_path / "python"), str(tmp_path)]
    with subprocess.Popen(command) as maker:
        eventually(told.exists)
        generator = int(told.read_text())
        maker.kill()
    eventually(lambda: not Path(f"/proc/{generator}").exists())


def test_several_processes_at_once_make_them_once(tmp_path: Path) -> None:
    """Who makes them a second time takes them from under a third one that reads them."""
    program = (
        "import sys; from pathlib import Path; from harness.workloads.tpch import join_inputs\n"
        "inputs = join_inputs(Path(sys.argv[1]), 'smoke')\n"
        "print(inputs.digest, Path(inputs.orders.filename).stat().st_ino)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate(timeout=120)[0] for process in started}
    assert all(process.returncode == 0 for process in started)
    assert len(said) == 1


def test_made_twice_is_the_same(smoke: JoinInputs, tmp_path: Path) -> None:
    assert tpch.join_inputs(tmp_path, "smoke").digest == smoke.digest
