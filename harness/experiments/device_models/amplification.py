"""Write amplification: simulated drives of a plain layout, and theory at the spare that they have.

Theory knows one group of blocks, one page a write, and nothing besides. So all of these drives have
a single die, a map unit of one page, copies that go where host writes go, and collection when a
block is needed; what else a profile says (timing) decides nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from harness.devices import waf_theory
from harness.devices.model import Device, Job
from harness.devices.profiles import NamedRange
from harness.errors import BadParameter
from harness.experiments.base import Measurement
from harness.experiments.device_models.grid import LAYOUTS, Cell, HotColdCell, UniformCell, effort
from harness.tiers.simulated import SimulatedBench

PAGE_BYTES: Final = 4096
PAGES_PER_BLOCK: Final = 64
BLOCKS: Final = 1024
_RESERVE_BLOCKS: Final = 1

_PLAIN: Final = {
    "page": "4 KiB",
    "map_unit": "4 KiB",
    "planes": "1",
    "pages_per_block": str(PAGES_PER_BLOCK),
    "channels": "1",
    "dies_per_channel": "1",
    "allocation": "per_die",
    "gc_placement": "mixed",
    "gc_pace": "whole",
    "reserve_blocks": str(_RESERVE_BLOCKS),
    "write_buffer": "64 KiB",
    "slc_cache": "0 B",
    "background_gc": "false",
    "streams": "1",
    "placement": "none",
}
_BY_STREAM: Final = {"streams": "2", "placement": "range", "gc_placement": "by_stream"}
_DEPTH: Final = 32
_STEPS_PER_OVERWRITE: Final = 20


def waf(v: UniformCell, bench: SimulatedBench) -> Measurement:
    """Uniform random writes in the steady state."""
    device = _drive(v, bench, {"gc_policy": v.policy, "gc_choices": v.gc_choices})
    device.to_steady_state(_seed(v))
    run = device.run(_writes(v, device, overwrites=2.0))
    return Measurement({"waf": run.waf, **_uniform_theory(v, device)})


def warm_up(v: UniformCell, bench: SimulatedBench) -> Measurement:
    """Uniform random writes on a drive that was just filled in order, step by step."""
    device = _drive(v, bench, {"gc_policy": v.policy, "gc_choices": v.gc_choices})
    device.precondition(fill_ratio=1.0)
    step = 1 / _STEPS_PER_OVERWRITE
    overwrites = 2 if effort(v.scale) > 1 else 5
    steps = range(overwrites * _STEPS_PER_OVERWRITE)
    wafs = [device.run(_writes(v, device, overwrites=step, seed=i)).waf for i in steps]
    written = [(i + 0.5) * step for i in steps]
    metrics = {"waf": wafs[-1], "highest_waf": max(wafs), **_uniform_theory(v, device)}
    return Measurement(metrics, {"written_ratio": written, "waf": wafs})


def hot_cold(v: HotColdCell, bench: SimulatedBench) -> Measurement:
    """Hot and cold writes, with or without blocks of their own, after their own warm-up."""
    policy, separated = LAYOUTS[v.layout]
    streams = _BY_STREAM if separated else {}
    device = _drive(v, bench, {"gc_policy": policy, **streams})
    device.precondition(fill_ratio=1.0)
    # Cold data is collected so seldom that it takes this long until it lies as it will lie.
    device.run(_hot_cold_writes(v, device, overwrites=6.0 if effort(v.scale) > 2 else 12.0, seed=1))
    run = device.run(_hot_cold_writes(v, device, overwrites=2.0, seed=2))
    return Measurement({"waf": run.waf, **_hot_cold_theory(v, device)})


def _drive(
    v: UniformCell | HotColdCell, bench: SimulatedBench, overrides: Mapping[str, str | int]
) -> Device:
    """A drive of BLOCKS blocks with as many logical pages as the spare factor leaves."""
    slots = _blocks(v) * PAGES_PER_BLOCK
    pages = round(slots * (1 - v.spare_factor))
    # The layout rounds up to whole blocks: aim at the middle of the last one.
    overprovision = (slots - PAGES_PER_BLOCK / 2) / pages - 1
    hot = round(pages * (v.hot_data_ratio if isinstance(v, HotColdCell) else 0)) * PAGE_BYTES
    ranges = [NamedRange("hot", 0, hot, stream=1)] if overrides.get("placement") == "range" else []
    texts = {name: str(value) for name, value in overrides.items()}
    size = {"capacity": f"{pages * PAGE_BYTES} B", "overprovision": f"{overprovision:.12f}"}
    return bench.new_model(
        v.device, overrides={**_PLAIN, **size, **texts}, seed=_seed(v), ranges=ranges
    )


def _blocks(v: Cell) -> int:
    return BLOCKS // (2 if v.scale == "smoke" else 1)


def _seed(v: Cell) -> int:
    return 1 + v.repetition


def _pages(device: Device) -> int:
    return device.capacity_bytes // PAGE_BYTES


def _writes(v: Cell, device: Device, *, overwrites: float, seed: int = 0) -> Job:
    return Job(
        op="write",
        pattern="random",
        block_bytes=PAGE_BYTES,
        queue_depth=_DEPTH,
        requests=round(_pages(device) * overwrites),
        seed=1000 * _seed(v) + seed,
    )


def _hot_cold_writes(v: HotColdCell, device: Device, *, overwrites: float, seed: int) -> Job:
    return replace(
        _writes(v, device, overwrites=overwrites, seed=seed),
        pattern="hot_cold",
        hot_data_ratio=v.hot_data_ratio,
        hot_access_ratio=v.hot_access_ratio,
    )


def _effective_spare(v: Cell, device: Device, *, extra_open: int = 0) -> float:
    """The spare factor that theory's T has to be taken with.

    Theory counts every block: each stream has one open, and none is free. Here the reserve stays
    free at all times, which takes it out of T. `extra_open` blocks are open besides, for copies,
    and half empty on average.
    """
    idle_blocks = _RESERVE_BLOCKS + extra_open / 2
    usable = (_blocks(v) - idle_blocks) * PAGES_PER_BLOCK
    return 1 - _pages(device) / usable


def _uniform_theory(v: UniformCell, device: Device) -> dict[str, float]:
    """What theory says of the policy; nothing of cost_benefit, for which it has no closed form."""
    spare = _effective_spare(v, device)
    theory = {
        "fifo": lambda: waf_theory.fifo(spare),
        "greedy": lambda: waf_theory.greedy(spare, PAGES_PER_BLOCK),
        "d_choices": lambda: waf_theory.d_choices(spare, PAGES_PER_BLOCK, v.gc_choices),
    }
    policy = v.policy
    metrics = {"effective_spare_factor": spare}
    if policy in theory:
        metrics["theory_waf"] = theory[policy]()
    return metrics


def _hot_cold_theory(v: HotColdCell, device: Device) -> dict[str, float]:
    """Three marks for every layout, at its own spare.

    Mixed: one stream, FIFO. Separated: two streams whose spare is split as well as can be, each
    cleaned greedily. Balanced: two streams of which the emptiest block of both is taken. Then
    victims of both are equally full, so both have the drive's spare factor, and it writes as much
    as if all data were alike.
    """
    _, by_stream = LAYOUTS[v.layout]
    spare = _effective_spare(v, device, extra_open=2 if by_stream else 0)
    if spare <= 0:
        raise BadParameter(f"spare_factor {v.spare_factor}: too small for the open blocks")
    shares = v.hot_data_ratio, v.hot_access_ratio
    separated = waf_theory.hot_cold_separated(
        spare, *shares, cleaning=lambda s: waf_theory.greedy(s, PAGES_PER_BLOCK)
    )
    return {
        "effective_spare_factor": spare,
        "theory_mixed_waf": waf_theory.hot_cold_mixed(spare, *shares),
        "theory_separated_waf": separated.waf,
        "theory_balanced_waf": waf_theory.greedy(spare, PAGES_PER_BLOCK),
    }
