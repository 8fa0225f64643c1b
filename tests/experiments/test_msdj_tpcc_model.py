"""TPC-C on InnoDB over ext4's journal in virtual time: points of the pipeline, but short."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import REPOSITORY

from harness import _core
from harness.devices import scaling
from harness.devices.profiles import SsdProfile
from harness.errors import BadParameter, DiskFull, Interrupted, UnknownName
from harness.experiments import kernel
from harness.experiments.base import Measurement, Scalar
from harness.experiments.msdj_tpcc import grid, model, pages
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import TRACE_ROWS, SimulatedBench

PARAMS = yaml.safe_load((REPOSITORY / "params.yaml").read_text())["msdj_tpcc"]["simulated"]
PROFILES = REPOSITORY / "hardware" / "profiles"
MODES = ("oj_dwb", "oj", "dj", "msdj")
APART = ("journal", "doublewrite", "redo")
METRICS = {
    *("tpmc", "transactions", "waf_ratio", "host_written_bytes", "nand_written_bytes"),
    *("journal_written_bytes", "doublewrite_written_bytes", "redo_written_bytes"),
    *("home_written_bytes", "journal_size_bytes", "rest_size_bytes", "journal_requests_per_lba"),
    *("rest_requests_per_lba", "journal_accesses_per_lba", "rest_accesses_per_lba"),
    *("pages_flushed", "journal_commits", "new_order_mean_ms", "new_order_p90_ms"),
    *("payment_mean_ms", "payment_p90_ms"),
}
SERIES = {
    *("waf_time_s", "waf_ratio", "waf_written_bytes", "waf_programmed_bytes", "tpmc_time_s"),
    *("tpmc_per_interval", "table_written_pages", "home_write_concentration"),
}


def parameters(**changes: Any) -> grid.Parameters:
    return grid.Parameters.model_validate(
        {**PARAMS["parameters"], "modes": list(MODES), "variants": {}, "scale": "smoke", **changes}
    )


def bench(devices: Mapping[str, str] = PARAMS["bench"]["devices"]) -> SimulatedBench:
    return SimulatedBench(PROFILES, devices, PARAMS["bench"]["host"])


def cell(of: str, **changes: Any) -> grid.Cell:
    """That mode's point with the smallest journal, of a few seconds."""
    found = [c for c in map(grid.Cell.of, grid.points(parameters(), ["pm953"])) if c.mode == of]
    least = min(found, key=lambda c: c.journal_bytes)
    return replace(least, **{"warm_up_s": 0.5, "measured_s": 3.0, **changes})


def run(of: str, **changes: Any) -> Measurement:
    return model.run_point(cell(of, **changes), {}, bench())


@cache
def ran(mode: str) -> Measurement:
    return run(mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_point_has_the_metrics_and_series_that_all_tiers_have(mode: str) -> None:
    measurement = ran(mode)
    assert set(measurement.metrics) >= METRICS
    assert set(measurement.series) == SERIES
    assert measurement.metrics["measured_s"] == pytest.approx(3.0)
    assert measurement.metrics["tpmc"] > 0
    series = measurement.series
    assert len(series["waf_time_s"]) == len(series["tpmc_per_interval"]) + 1
    assert list(series["waf_written_bytes"]) == sorted(series["waf_written_bytes"])
    assert series["waf_written_bytes"][-1] == measurement.metrics["host_written_bytes"]
    assert len(series["table_written_pages"]) == len(pages.TABLES)
    assert len(series["home_write_concentration"]) == len(pages.SHARES)
    assert series["home_write_concentration"][-1] == pytest.approx(1.0)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_bits(mode: str) -> None:
    again = run(mode)
    assert again.metrics == ran(mode).metrics
    for name, expected in ran(mode).series.items():
        np.testing.assert_array_equal(again.series[name], expected)  # with NaN at the begin


@pytest.mark.parametrize("mode", MODES)
def test_the_trace_has_every_nth_request_of_what_was_counted(mode: str) -> None:
    trace, metrics = ran(mode).trace, ran(mode).metrics
    steps = np.diff(trace["number"])
    assert trace["number"][0] == 0
    assert len(trace["number"]) <= TRACE_ROWS
    assert set(steps) == {steps[0]}
    assert (np.diff(trace["time_ns"]) >= 0).all()
    assert (trace["time_ns"][-1] - trace["time_ns"][0]) / 1e9 == pytest.approx(3.0, rel=0.05)
    writes = trace["op"] == 1
    written_bytes = int(trace["sectors"][writes].sum()) * 512 * steps[0]
    assert written_bytes == pytest.approx(metrics["host_written_bytes"], rel=0.1)
    streams = set(trace["stream"][writes])
    assert len(streams) == (2 if mode.startswith("msdj") else 1)


def test_another_seed_gives_another_run() -> None:
    assert run("dj", seed=2).metrics != ran("dj").metrics


@pytest.mark.parametrize("mode", MODES)
def test_bytes_by_place_are_those_that_the_drive_has_counted_for_it(mode: str) -> None:
    v = cell(mode)
    b = bench()
    machine = b.stack(DeviceRequest(device="pm953"))
    result = model.simulate(machine, v, b.cancel)
    assert isinstance(machine.device, SsdProfile)
    unit = machine.device.parameters.map_unit.value
    first, last = result["samples"][0], result["samples"][-1]
    assert len(last["shares"]) == len(APART) + 1
    by_drive = []
    for before, after in zip(first["shares"], last["shares"], strict=True):
        host, _, _, coalesced = (b - a for a, b in zip(before, after, strict=True))
        by_drive.append((host + coalesced) * unit)
    metrics = model.metrics(result["samples"], result, v)
    by_host = [metrics[f"{place}_written_bytes"] for place in (*APART, "home")]
    # What is on its way to the flash when somebody looks.
    in_buffer = machine.device.parameters.write_buffer.value
    assert by_drive == pytest.approx(by_host, abs=in_buffer)
    assert sum(by_host) == metrics["host_written_bytes"]


def test_what_each_mode_writes_where() -> None:
    doublewrite, plain, journal = (ran(mode).metrics for mode in ("oj_dwb", "oj", "dj"))
    page = 16384
    assert doublewrite["doublewrite_written_bytes"] > 0
    assert plain["doublewrite_written_bytes"] == journal["doublewrite_written_bytes"] == 0
    assert journal["journal_written_bytes"] >= journal["pages_flushed"] * page
    assert plain["journal_written_bytes"] < plain["pages_flushed"] * page / 2
    both = doublewrite["doublewrite_written_bytes"] / doublewrite["home_written_bytes"]
    assert both == pytest.approx(1.0, rel=0.1)


def test_the_journal_is_accessed_far_more_often_than_the_rest() -> None:
    metrics = ran("dj").metrics
    assert metrics["journal_accesses_per_lba"] > 10 * metrics["rest_accesses_per_lba"]
    assert metrics["journal_size_bytes"] + metrics["rest_size_bytes"] == cell("dj").device_bytes


@pytest.mark.parametrize("scale", sorted(grid.SCALES))
def test_a_drive_that_shrinks_with_the_rest_keeps_the_number_of_its_blocks(scale: str) -> None:
    """And how much of a block the journal is: both decide what a collection finds."""
    stack = bench().stack(DeviceRequest(device="pm953", overrides={}))
    assert isinstance(stack.device, SsdProfile)
    whole = stack.device.parameters
    v = grid.Cell.of(grid.points(parameters(scale=scale), ["pm953"])[0])
    p = model._drive(stack, v, journal_stream=True).parameters
    ratio = grid.SCALES[scale]
    assert p.capacity.value == v.device_bytes
    assert p.pages_per_block.value == pytest.approx(whole.pages_per_block.value * ratio, abs=0.5)
    assert p.erase_block.value == pytest.approx(whole.erase_block.value * ratio, rel=0.1)
    blocks = p.capacity.value / p.pages_per_block.value
    assert blocks == pytest.approx(whole.capacity.value / whole.pages_per_block.value, rel=0.1)


def test_a_drive_of_another_size_is_a_small_one_that_behaves_like_it() -> None:
    """The emulated drive is smaller than its database is: fewer blocks, none too short."""
    stack = bench().stack(DeviceRequest(device="pm953", overrides={}))
    assert isinstance(stack.device, SsdProfile)
    v = replace(cell("dj"), device_bytes=8 << 30)
    drive = model._drive(stack, v, journal_stream=False)
    assert drive.parameters.pages_per_block == (
        scaling.scaled_to(stack.device, 8 << 30).parameters.pages_per_block
    )


def test_pages_go_home_when_their_file_is_synced_not_by_age() -> None:
    """On each kernel as often as they are flushed; so the journal's size does not matter to it."""
    smallest, *_, largest = sorted(_cells(), key=_journal)
    for version in ((3, 19), (6, 3), (6, 4), kernel.EMULATED):
        for v in (smallest, largest):
            found = _short(v, model.Software(version)).metrics
            assert found["journal_expired_bytes"] == 0
            assert found["pages_home"] == pytest.approx(found["pages_flushed"], rel=0.05)
            by_sync = found["journal_synced_bytes"] >= found["pages_home"] * 16384
            assert by_sync or found["journal_checkpoints"] > 0  # which a large one has no need of
            assert by_sync or v == smallest


def test_a_flusher_that_looks_all_the_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_FLUSHER_INTERVAL_NS", 0)
    with pytest.raises(BadParameter, match="flusher_interval"):
        run("dj")


def test_since_linux_6_4_the_last_block_of_the_log_goes_home_with_each_commit() -> None:
    """Before, the next commit has changed it again when it could go: whole blocks go home, once."""
    v = min(_cells(), key=_journal)
    before, since = (_short(v, model.Software(at)).metrics for at in ((6, 3), (6, 4)))
    assert before["redo_written_bytes"] == pytest.approx(before["redo_bytes"], rel=0.05)
    again = since["redo_written_bytes"] - since["redo_bytes"]
    assert again == pytest.approx(4096 * since["redo_syncs"], rel=0.25)


def test_since_linux_6_11_a_transaction_takes_a_third_of_the_journal() -> None:
    """And a quarter before: the paper's kernel, too."""
    parts = [
        model.Software(at).spec["ring_per_transaction"]
        for at in ((6, 10), (6, 11), kernel.EMULATED)
    ]
    assert [model.PAPERS.spec["ring_per_transaction"], *parts] == [4, 4, 3, 3]


def test_an_inode_is_committed_once_a_tick_of_the_kernels_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several commits of transactions fall into one, whose sync of the log then only flushes."""
    found = run("oj_dwb").metrics
    assert found["journal_commits"] < 0.7 * found["redo_syncs"]
    assert found["journal_commits"] < 3.0 / kernel.TICK_S * 2  # that many ticks, of two files
    monkeypatch.setattr(kernel, "TICK_S", 1e-9)
    each = run("oj_dwb").metrics
    assert each["journal_commits"] > each["redo_syncs"]


def test_a_rhythm_shrinks_with_the_sizes_and_the_kernels_tick_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []

    def heard(**values: Any) -> _core.TpccSpec:
        told.append(values)
        raise BadParameter("heard")

    monkeypatch.setattr(_core, "TpccSpec", heard)
    for scale in ("smoke", "paper"):
        v = grid.Cell.of(grid.points(parameters(scale=scale), ["pm953"])[0])
        with pytest.raises(BadParameter, match="heard"):
            model.run_point(v, {}, bench())
    assert [values["old_blocks_ns"] for values in told] == [10_000_000, 1_000_000_000]
    assert [values["tick_ns"] for values in told] == [4_000_000] * 2


def test_a_log_past_the_page_cache_is_written_in_the_drives_blocks() -> None:
    metrics = [
        _short(cell("oj_dwb"), model.Software(redo_block_bytes=n)).metrics for n in (4096, 512)
    ]
    over = [found["redo_written_bytes"] / found["redo_bytes"] for found in metrics]
    assert over[0] > over[1] > 1.0
    assert metrics[1]["redo_written_bytes"] - metrics[1]["redo_bytes"] > 0
    assert metrics[1]["redo_written_bytes"] % 4096


def test_files_headers_that_get_old_are_written_when_they_reach_the_end_of_the_list() -> None:
    young, old = (
        _short(cell("oj_dwb"), model.Software(file_pages_age=age)).series["table_written_pages"]
        for age in (False, True)
    )
    history, orders = map(pages.TABLES.index, ("history", "orders"))
    assert old[history] == pytest.approx(young[history], rel=0.1)  # it gets one in a hundred rows
    assert old[orders] > young[orders] + 50  # their index by customer gets pages all the time


def _cells() -> list[grid.Cell]:
    return [c for c in map(grid.Cell.of, grid.points(parameters(), ["pm953"])) if c.mode == "dj"]


def _short(v: grid.Cell, software: model.Software) -> Measurement:
    return model.run_point(replace(v, warm_up_s=0.5, measured_s=3.0), {}, bench(), software)


def _journal(v: grid.Cell) -> int:
    return v.journal_bytes


def test_a_roomy_drive_copies_almost_nothing() -> None:
    for mode in ("dj", "msdj"):
        assert run(mode, filled_ratio=0.0).metrics["waf_ratio"] == pytest.approx(1.0, abs=0.06)
    assert run("dj", measured_s=12.0).metrics["waf_ratio"] > 1.1  # time enough to fill the spare


def test_what_was_aged_lies_below_the_files_or_behind_them() -> None:
    """Behind them nothing is ever written again. All of the drive, or nothing, is one and the same.

    The server does the same in all of them, so that what differs is the drive's.
    """

    def both(ageing_bytes: int) -> list[Measurement]:
        return [
            run("msdj", ageing_bytes=ageing_bytes, aged_under_files=under)
            for under in (True, False)
        ]

    drive_bytes = cell("msdj").device_bytes
    for ageing_bytes in (0, drive_bytes, 2 * drive_bytes):
        below, behind = both(ageing_bytes)
        assert below.metrics == behind.metrics
    below, behind = both(drive_bytes // 12)
    assert behind.metrics["waf_ratio"] > 1.02 * below.metrics["waf_ratio"]


@pytest.mark.parametrize("begin_bytes", [-4096, 1 << 50])
def test_what_was_aged_lies_on_the_drive(begin_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _core.TpccSpec

    def elsewhere(**values: Any) -> _core.TpccSpec:
        return made(**{**values, "aged_begin_bytes": begin_bytes})

    monkeypatch.setattr(_core, "TpccSpec", elsewhere)
    with pytest.raises(BadParameter):
        run("msdj")


def test_a_stream_of_its_own_makes_the_journal_cheaper() -> None:
    """On a drive with room for another open block in every die."""
    size: dict[str, Scalar] = {"device_bytes": 8 << 30, "measured_s": 30.0}
    waf = {mode: run(mode, **size).metrics["waf_ratio"] for mode in ("dj", "msdj")}
    assert 1.0 < waf["msdj"] < waf["dj"]


def test_a_log_elsewhere_is_not_on_the_drive() -> None:
    assert ran("dj").metrics["redo_syncs"] > 0
    metrics = run("oj_dwb", redo_on="elsewhere", doublewrite_on="elsewhere").metrics
    assert metrics["redo_written_bytes"] == metrics["doublewrite_written_bytes"] == 0
    assert metrics["redo_syncs"] > 0


# --- errors


def test_a_database_that_does_not_fit_says_so_in_one_line() -> None:
    with pytest.raises((DiskFull, BadParameter), match="do not fit") as caught:
        run("dj", warehouses=1000)
    assert "\n" not in str(caught.value)


def test_a_disk_has_no_streams() -> None:
    with pytest.raises(BadParameter, match="a disk has no streams"):
        model.run_point(cell("dj", device="hdd"), {}, bench({"hdd": "seagate_250gb"}))


def test_a_drive_with_one_stream_cannot_have_ms_dj() -> None:
    with pytest.raises(BadParameter, match="MS-DJ needs two"):
        model.run_point(cell("msdj"), {"streams": "1"}, bench())


def test_larger_blocks_of_the_file_system_are_not_simulated() -> None:
    with pytest.raises(BadParameter, match="4 KiB only"):
        run("dj", mode="dj_16k")


def test_a_host_without_a_server_is_refused() -> None:
    other = SimulatedBench(PROFILES, PARAMS["bench"]["devices"], "athlon_2010")
    with pytest.raises(BadParameter, match="needs innodb and ext4"):
        model.run_point(cell("dj"), {}, other)


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(BadParameter, match="TpccSpec"):
        _core.TpccSpec(connections=1, unheard_of=1)  # type: ignore[call-arg]
    with pytest.raises(UnknownName):
        model.run_point(cell("dj"), {"unheard_of": "1"}, bench())


def test_a_run_that_is_cancelled_ends() -> None:
    b = bench()
    timer = threading.Timer(0.5, b.cancel.set)
    timer.start()
    with pytest.raises(Interrupted):
        model.run_point(cell("dj", measured_s=100_000.0), {}, b)
    timer.join()


def test_an_extent_that_holds_every_table_is_a_table_in_one_piece() -> None:
    b = bench()
    whole, larger, alternating = (
        model.run_point(cell("dj", table_extent_bytes=size), {}, b).metrics["waf_ratio"]
        for size in (64 << 30, 1 << 40, 4 << 20)
    )
    assert whole == larger
    assert whole != alternating
