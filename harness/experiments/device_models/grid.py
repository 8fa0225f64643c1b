"""The grid: points of seven kinds, each an experiment with one of the models.

waf         write amplification of uniform random writes, by spare factor and policy
hot_cold    the same for hot and cold data, with and without streams
warm_up     write amplification over time, from a freshly filled drive on
load        latency against offered load
trim        reads beside TRIMs
disk_seek   reads at random distances
disk_queue  reads by queue depth and order of the queue
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from harness.experiments.base import Point, Scalar
from harness.units import format_bytes, parse_bytes

FLASH: Final = "ssd"
"""The experiment's name for its flash drive; all its other devices are hard disks."""

LAYOUTS: Final = {
    "one stream, fifo": ("fifo", False),
    "one stream, greedy": ("greedy", False),
    "two streams, greedy": ("greedy", True),
    "two streams, cost_benefit": ("cost_benefit", True),
}
"""How hot and cold data are laid out: victim policy, and whether each has blocks of its own."""

_T = TypeVar("_T")


def _checked(check: Callable[[Any], object]) -> BeforeValidator:
    def validate(value: Any) -> Any:
        check(value)
        return value

    return BeforeValidator(validate)


SizeText = Annotated[str, _checked(parse_bytes)]
Share = Annotated[float, Field(gt=0, lt=1)]
Depth = Annotated[int, Field(ge=1, le=4096)]


class Parameters(BaseModel):
    """The grid. Sizes are texts with units; a spare factor is 1 - logical / physical size.

    `scale` thins out the sweeps and shortens each run: `small` takes about every second value and
    half of the requests, `smoke` the first and the last value and an eighth.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Literal["smoke", "small", "paper"] = "paper"
    repetitions: int = Field(3, ge=1, le=1000)
    policies: list[str]
    gc_choices: int = Field(10, ge=1)
    spare_factors: list[Share]
    hot_cold_spare_factors: list[Share]
    hot_data_ratio: Share = 0.1
    hot_access_ratio: Share = 0.9
    warm_up_spare_factor: Share = 0.1
    load_ratios: list[Share]
    trim_sizes: list[SizeText]
    trims_per_s: Annotated[float, Field(gt=0)] = 20
    trim_rates_per_s: list[Annotated[float, Field(gt=0)]]
    trim_size: SizeText = "1 MiB"
    trim_read_depths: list[Depth]
    queue_depths: list[Depth]
    schedulers: list[str]


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every setting once, in a fixed order."""
    unique: dict[str, Point] = {}
    for values in _settings(parameters, devices):
        point = Point(values, _label(values))
        unique.setdefault(point.id, point)
    return list(unique.values())


def effort(scale: object) -> int:
    """By how much the runs of a scale are shorter."""
    return {"smoke": 8, "small": 2}.get(str(scale), 1)


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[dict[str, Scalar]]:
    repetitions = 1 if p.scale == "smoke" else p.repetitions
    common: dict[str, Scalar]
    for repetition in range(repetitions if FLASH in devices else 0):
        common = {"device": FLASH, "scale": p.scale, "repetition": repetition}
        yield from ({**common, **values} for values in _amplification(p))
        if repetition == 0:
            yield from ({**common, **values} for values in _latency(p))
    for device in devices:
        if device != FLASH:
            common = {"device": device, "scale": p.scale, "repetition": 0}
            yield from ({**common, **values} for values in _disk(p))


def _amplification(p: Parameters) -> Iterator[dict[str, Scalar]]:
    policies: list[dict[str, Scalar]] = [
        {"policy": policy, "gc_choices": p.gc_choices} for policy in p.policies
    ]
    for policy in policies:
        for spare in _thinned(p, p.spare_factors):
            yield {"kind": "waf", **policy, "spare_factor": spare}
        yield {"kind": "warm_up", **policy, "spare_factor": p.warm_up_spare_factor}
    for layout in LAYOUTS:
        for spare in _thinned(p, p.hot_cold_spare_factors):
            yield {
                "kind": "hot_cold",
                "layout": layout,
                "spare_factor": spare,
                "hot_data_ratio": p.hot_data_ratio,
                "hot_access_ratio": p.hot_access_ratio,
            }


def _latency(p: Parameters) -> Iterator[dict[str, Scalar]]:
    for mix, read_ratio in (("reads", 1.0), ("writes", 0.0), ("70/30 mix", 0.7)):
        for load in _thinned(p, p.load_ratios):
            yield {"kind": "load", "mix": mix, "read_ratio": read_ratio, "load_ratio": load}
    sizes = [(parse_bytes(size), p.trims_per_s) for size in _thinned(p, p.trim_sizes)]
    rates = [(parse_bytes(p.trim_size), rate) for rate in _thinned(p, p.trim_rates_per_s)]
    for depth in p.trim_read_depths:
        for size_bytes, rate in (*sizes, *rates):
            for command in ("queued", "non-queued"):
                yield {
                    "kind": "trim",
                    "trim_command": command,
                    "trim_bytes": size_bytes,
                    "trims_per_s": rate,
                    "queue_depth": depth,
                }


def _disk(p: Parameters) -> Iterator[dict[str, Scalar]]:
    yield {"kind": "disk_seek"}
    for scheduler in p.schedulers:
        for depth in _thinned(p, p.queue_depths):
            yield {"kind": "disk_queue", "scheduler": scheduler, "queue_depth": depth}


def _thinned(p: Parameters, values: Sequence[_T]) -> list[_T]:
    """All values, or every second one and the last, or the first and the last one."""
    if p.scale == "paper" or len(values) < 3:
        return list(values)
    step = 2 if p.scale == "small" else len(values) - 1
    kept = {*range(0, len(values), step), len(values) - 1}
    return [value for i, value in enumerate(values) if i in kept]


def _label(v: dict[str, Scalar]) -> str:
    size = format_bytes(float(v["trim_bytes"])) if "trim_bytes" in v else ""
    named = ("policy", "layout", "mix", "trim_command", "scheduler", "spare_factor", "load_ratio")
    said = [str(v[name]) for name in named if name in v]
    depth = f"depth {v['queue_depth']}" if "queue_depth" in v else ""
    return " ".join(text for text in (str(v["device"]), str(v["kind"]), *said, size, depth) if text)
