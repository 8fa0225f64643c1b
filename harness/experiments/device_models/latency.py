"""Latency of a flash drive: against offered load, and beside TRIMs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from harness.devices.model import Device, Job, Run
from harness.devices.profiles import SsdProfile
from harness.experiments.base import Measurement
from harness.experiments.device_models.grid import Cell, LoadCell, TrimCell, effort
from harness.tiers.simulated import SimulatedBench

# The whole drive takes seconds to fill. A small one behaves like it as long as a die has many
# blocks beside the open ones; so blocks shrink, too.
_SMALL: Final = {"capacity": "8 GiB", "pages_per_block": "32"}
_BLOCK_BYTES: Final = 4096
_REQUESTS: Final = 60_000
_TRIMS_LEAST: Final = 5
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def load(v: LoadCell, bench: SimulatedBench) -> Measurement:
    """Poisson arrivals at a share of what the drive sustains, on a drive in steady state."""
    device = _small_drive(v, bench, {})
    device.to_steady_state(1)
    requests = _REQUESTS // effort(v.scale)
    flat_out = Job(
        read_ratio=v.read_ratio,
        block_bytes=_BLOCK_BYTES,
        queue_depth=_profile(device).parameters.queue_depth.value,
        requests=requests,
        seed=1,
    )
    saturation_iops = device.run(flat_out).iops
    interval_s = 1 / (saturation_iops * v.load_ratio)
    arriving = replace(flat_out, interval_s=interval_s, poisson=True)
    device.run(replace(arriving, requests=requests // 2, seed=2))  # queues of that load
    run = device.run(replace(arriving, seed=3))
    metrics = {"saturation_iops": saturation_iops, "offered_iops": 1 / interval_s}
    theory = {"theory_read_mean_us": _theory_us(device, 1 / interval_s)} if _reads_only(v) else {}
    return Measurement({**metrics, "iops": run.iops, **_latencies(run), **theory})


def trim(v: TrimCell, bench: SimulatedBench) -> Measurement:
    """Reads of one half of the drive while the other half is trimmed."""
    queued = "true" if v.trim_command == "queued" else "false"
    device = _small_drive(v, bench, {"trim_queued": queued})
    device.precondition(fill_ratio=1.0)
    half = device.capacity_bytes // 2
    duration_s = max(2.0 / effort(v.scale), _TRIMS_LEAST / v.trims_per_s)
    reads = Job(
        op="read",
        block_bytes=_BLOCK_BYTES,
        end_bytes=half,
        queue_depth=v.queue_depth,
        duration_s=duration_s,
        seed=1,
    )
    trims = Job(
        op="trim",
        pattern="sequential",
        block_bytes=v.trim_bytes,
        begin_bytes=half,
        duration_s=duration_s,
        interval_s=1 / v.trims_per_s,
        seed=2,
    )
    alone = device.run(reads)
    run = device.run(reads, trims)
    metrics = {
        "alone_read_mean_us": alone.ops["read"].latency_mean_ns / 1e3,
        "alone_iops": alone.iops,
        "read_iops": run.ops["read"].ios / duration_s,
        "trims": run.ops["trim"].ios,
        **_latencies(run),
    }
    return Measurement({**metrics, **_trim_costs(run)})


def _small_drive(v: Cell, bench: SimulatedBench, overrides: Mapping[str, str]) -> Device:
    return bench.new_model(v.device, overrides={**_SMALL, **overrides}, seed=1)


def _profile(device: Device) -> SsdProfile:
    assert isinstance(device.profile, SsdProfile)
    return device.profile


def _reads_only(v: LoadCell) -> bool:
    return v.read_ratio == 1.0


def _latencies(run: Run) -> dict[str, float]:
    """Mean and quantiles in us of every operation that occurred."""
    metrics = {}
    for name, op in run.ops.items():
        if op.ios == 0:
            continue
        metrics[f"{name}_mean_us"] = op.latency_mean_ns / 1e3
        for label, quantile in _QUANTILES.items():
            metrics[f"{name}_{label}_us"] = op.latency_ns(quantile) / 1e3
        metrics[f"{name}_max_us"] = op.latency_max_ns / 1e3
    return metrics


def _trim_costs(run: Run) -> dict[str, float]:
    """What one TRIM costs the firmware, by part, in us."""
    return {
        f"trim_{part}_us": run.counters[f"firmware_trim_{part}_ns"] / run.ops["trim"].ios / 1e3
        for part in ("command", "buffer", "map")
    }


def _theory_us(device: Device, iops: float) -> float:
    """Mean latency of random reads: the sum of the parts, and waiting as in an M/D/1 queue.

    Firmware and dies are servers with a fixed time s per read; at a load of rho, a read waits
    rho s / (2 (1 - rho)) for each (Pollaczek and Khinchine). The link is left out: the firmware in
    front of it spaces what arrives.
    """
    p = _profile(device).parameters
    dies = p.channels.value * p.dies_per_channel.value
    transfer_us = _BLOCK_BYTES / p.channel_rate.value * 1e6
    die_us = p.read_page.value / 1e3 + transfer_us
    firmware_us = p.command_time.value / 1e3
    link_us = _BLOCK_BYTES / p.link_rate.value * 1e6
    waits_us = _wait_us(iops, firmware_us) + _wait_us(iops / dies, die_us)
    return firmware_us + die_us + link_us + p.read_latency.value / 1e3 + waits_us


def _wait_us(iops: float, service_us: float) -> float:
    """M/D/1; no wait is finite at a load of 1 or more."""
    rho = iops * service_us / 1e6
    return rho * service_us / (2 * (1 - rho)) if rho < 1 else float("nan")
