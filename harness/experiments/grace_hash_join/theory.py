"""What simple arithmetic says a join should take: an independent check of the simulation.

Nothing here knows the device models' code. A flash drive costs a fixed time per transfer plus its
bytes; a disk passes over the gap to a partition's next unit, or jumps when that is sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness import _core
from harness.devices.profiles import (
    DeviceProfile,
    HddParameters,
    HddProfile,
    HostProfile,
    SsdParameters,
)
from harness.workloads.records import RECORD_BYTES


@dataclass(frozen=True)
class Shape:
    """A single user's join: record counts of both inputs, and the buffers in bytes."""

    records: tuple[int, int]
    read_buffer_bytes: int
    write_buffer_bytes: int
    input_io_bytes: int

    @property
    def bytes(self) -> int:
        """Both inputs."""
        return sum(self.records) * RECORD_BYTES

    @property
    def units(self) -> float:
        """Write buffers that the partitions fill."""
        return self.bytes / self.write_buffer_bytes

    @property
    def partitions(self) -> int:
        """As the engine plans them."""
        capacity = self.read_buffer_bytes // RECORD_BYTES
        return _core.partitions_for(self.records[0], capacity)


def predict(shape: Shape, device: DeviceProfile, host: HostProfile) -> tuple[float, float]:
    """Partition and join time in seconds of a synchronous Grace join (one transfer at a time)."""
    cpu = host.join_cpu
    assert cpu is not None  # the run itself refuses such a host
    everything = sum(shape.records)
    partition_cpu_s = everything * cpu.partition_cpu.value / 1e9
    join_cpu_s = (
        shape.records[0] * cpu.build_cpu.value
        + shape.records[1] * (cpu.probe_cpu.value + cpu.match_cpu.value)
    ) / 1e9
    host_s = (host.parameters.submit_cpu.value + host.parameters.complete_cpu.value) / 1e9
    if isinstance(device, HddProfile):
        # The platters turn while the host computes: its time is hidden in the gaps.
        think_s = host_s + join_cpu_s / shape.units
        partition_s, join_s = _disk(shape, device.parameters, host_s, think_s)
        return partition_s + partition_cpu_s, join_s
    partition_s, join_s = _flash(shape, device.parameters, host_s)
    return partition_s + partition_cpu_s, join_s + join_cpu_s


def _flash(shape: Shape, d: SsdParameters, host_s: float) -> tuple[float, float]:
    def read_s(size_bytes: int) -> float:
        fixed_ns = d.command_time.value + d.read_page.value
        first_page_s = min(size_bytes, d.page.value) / d.channel_rate.value
        return fixed_ns / 1e9 + first_page_s + size_bytes / d.link_rate.value + host_s

    def write_s(size_bytes: int) -> float:
        fixed_ns = (d.write_command_time or d.command_time).value + d.write_latency.value
        return fixed_ns / 1e9 + size_bytes / d.link_rate.value + host_s

    if shape.partitions == 1:
        return 0.0, shape.bytes / shape.input_io_bytes * read_s(shape.input_io_bytes)
    inputs_s = shape.bytes / shape.input_io_bytes * read_s(shape.input_io_bytes)
    page_s = d.program_page.value / 1e9 + d.page.value / d.channel_rate.value
    programs_s = shape.bytes / d.page.value * page_s / (d.channels.value * d.dies_per_channel.value)
    writes_s = max(shape.units * write_s(shape.write_buffer_bytes), programs_s)
    return inputs_s + writes_s, shape.units * read_s(shape.write_buffer_bytes)


def _disk(shape: Shape, d: HddParameters, host_s: float, think_s: float) -> tuple[float, float]:
    rate = d.outer_rate.value
    revolution_s = 60 / d.rpm.value
    overhead_s = d.command_overhead.value / 1e9 + host_s
    pass_s = shape.bytes / rate
    if shape.partitions == 1:
        return 0.0, pass_s
    # Each input chunk is read in one place and as much written in another: two jumps.
    jump_s = d.track_to_track_seek.value / 1e9 + revolution_s / 2
    chunks = shape.bytes / shape.input_io_bytes
    partition_s = 2 * pass_s + 2 * chunks * jump_s
    # The host hands units over one by one; the disk writes them back meanwhile.
    handing_s = shape.units * (shape.write_buffer_bytes / d.link_rate.value + overhead_s)
    join_s = shape.units * _mean_gap_s(shape, d, d.command_overhead.value / 1e9 + think_s)
    return max(partition_s, handing_s + pass_s), join_s


def _mean_gap_s(shape: Shape, d: HddParameters, overhead_s: float) -> float:
    """Mean time from the end of one unit of a partition to the end of the next.

    Between two flushes of a partition's buffer, each other partition flushes about once: the gap is
    P - 1 units. It varies as the time does in which a buffer fills, a sum of `fills` independent
    arrivals (records of one key come together): gamma-distributed with shape `fills`.
    """
    revolution_s = 60 / d.rpm.value + d.track_to_track_seek.value / 1e9
    unit_s = shape.write_buffer_bytes / d.outer_rate.value
    fills = shape.write_buffer_bytes / RECORD_BYTES / _RECORDS_PER_KEY_RUN
    gap = np.linspace(0, 6, 4001)[1:]  # in units of the mean
    weight = np.exp((fills - 1) * np.log(gap) - fills * (gap - 1))
    passing_s = gap * (shape.partitions - 1) * unit_s
    seek_s = d.track_to_track_seek.value / 1e9
    # Passed over, or jumped: then the sector comes round when its angle allows after the seek.
    turned_s = (passing_s - seek_s) % revolution_s + seek_s
    gap_s = np.maximum(np.where(passing_s < revolution_s, passing_s, turned_s), overhead_s)
    return float(np.average(gap_s, weights=weight)) + unit_s


_RECORDS_PER_KEY_RUN = 5
"""A lineitem stands among 5 of its order on average (1 to 7, uniform: E[n^2] / E[n])."""
