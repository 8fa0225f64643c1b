"""What a calibration is to find: the quantities behind a drive's rates, latencies and TRIM cost.

Some parameters of a profile cannot be told apart from outside; what their combination comes to can.
Program time, planes, page and dies make a rate; sensing and the transfer of 4 KiB make the time of
a page read; a command and its one range make the fixed cost of a TRIM.
"""

from __future__ import annotations

from typing import Final

from harness.devices.profiles import DeviceProfile, HddProfile, SsdParameters

_UNIT: Final = 4096
_MIB: Final = 1 << 20


def quantities(profile: DeviceProfile) -> dict[str, tuple[float, str]]:
    """Value and unit (s, bytes/s, bytes, rpm) by name, from a profile by arithmetic."""
    if isinstance(profile, HddProfile):
        return _of_disk(profile)
    p = profile.parameters
    write_command = p.write_command_time or p.command_time
    found = {
        "link rate (sequential reads)": (float(p.link_rate.value), "bytes/s"),
        "program rate (sequential writes)": (_program_rate(p, p.program_page.value), "bytes/s"),
        "read command time (random reads)": (p.command_time.value / 1e9, "s"),
        "write command time (random writes)": (write_command.value / 1e9, "s"),
        "time of a page read": (p.read_page.value / 1e9 + _UNIT / p.channel_rate.value, "s"),
        "latency of a read": (_read_latency_s(p), "s"),
        "latency of a write": (_write_latency_s(p), "s"),
    }
    if p.slc_cache.value:
        slc = _program_rate(p, p.slc_program_page.value)
        found["SLC program rate (first sequential writes)"] = (slc, "bytes/s")
        found["SLC cache"] = (float(p.slc_cache.value), "bytes")
    if p.trim.value != "none":
        command_ns = p.command_time.value + p.trim_command_time.value + p.trim_range_time.value
        slice_ns = p.trim_buffer_time.value + p.trim_map_time.value
        found["TRIM, fixed cost"] = (command_ns / 1e9, "s")
        found["TRIM, cost of a MiB"] = (slice_ns * (_MIB / p.trim_slice.value) / 1e9, "s")
    return found


def _of_disk(profile: HddProfile) -> dict[str, tuple[float, str]]:
    p = profile.parameters
    return {
        "outer rate (sequential reads)": (float(p.outer_rate.value), "bytes/s"),
        "inner rate (sequential reads)": (float(p.inner_rate.value), "bytes/s"),
        "link rate": (float(p.link_rate.value), "bytes/s"),
        "rotation": (float(p.rpm.value), "rpm"),
        "command overhead": (p.command_overhead.value / 1e9, "s"),
        "track-to-track seek": (p.track_to_track_seek.value / 1e9, "s"),
        "average seek": (p.average_seek.value / 1e9, "s"),
        "full-stroke seek": (p.full_stroke_seek.value / 1e9, "s"),
    }


def _program_rate(p: SsdParameters, program_ns: int) -> float:
    """Of all dies together, with the transfer of each page to its die before."""
    page = p.page.value * p.planes.value
    dies = p.channels.value * p.dies_per_channel.value
    return dies * page / (program_ns / 1e9 + page / p.channel_rate.value)


def _read_latency_s(p: SsdParameters) -> float:
    """Of 4 KiB alone, but for waiting."""
    fixed_ns = p.command_time.value + p.read_page.value + p.read_latency.value
    return fixed_ns / 1e9 + _UNIT / p.channel_rate.value + _UNIT / p.link_rate.value


def _write_latency_s(p: SsdParameters) -> float:
    """Of 4 KiB alone, into RAM."""
    command = p.write_command_time or p.command_time
    return (command.value + p.write_latency.value) / 1e9 + _UNIT / p.link_rate.value
