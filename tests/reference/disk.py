"""A disk without caches that serves one command after the other: slow, exact, and obvious.

The oracle of harness/core/disk, written from its documentation: a table of every track, a walk from
track to track, and the platter's angle in exact fractions of a nanosecond. Nothing is shared with
the fast model but the definition of the parameters.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction

SECTOR_BYTES = 512
LINK_CHUNK_BYTES = 4096
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Track:
    """One track: its sectors, and the angle (a time, in ns) at which the first one begins."""

    cylinder: int
    head: int
    first_lba: int
    sectors: int
    angle_ns: Fraction


@dataclass(frozen=True)
class Access:
    """One command's end (exact, ns), and how many tracks it touched."""

    end_ns: Fraction
    tracks: int


class ReferenceDisk:
    """Parameters as those of `_core.HddParameters`; caches and queue are left out."""

    def __init__(
        self,
        *,
        capacity_bytes: int,
        rpm: int,
        heads: int,
        zones: int,
        outer_rate_bytes_per_s: int,
        inner_rate_bytes_per_s: int,
        head_switch_ns: int,
        track_to_track_seek_ns: int,
        average_seek_ns: int,
        full_stroke_seek_ns: int,
        write_settle_ns: int,
        link_rate_bytes_per_s: int,
        command_overhead_ns: int,
        start_angle_ns: int,
    ) -> None:
        self.revolution_ns = 60 * NS_PER_S // rpm
        self.head_switch_ns = head_switch_ns
        self.track_to_track_ns = track_to_track_seek_ns
        self.average_ns = average_seek_ns
        self.full_stroke_ns = full_stroke_seek_ns
        self.write_settle_ns = write_settle_ns
        self.link_rate = link_rate_bytes_per_s
        self.overhead_ns = command_overhead_ns
        self.start_angle_ns = start_angle_ns
        wanted = capacity_bytes // SECTOR_BYTES
        densities = self._densities(heads, zones, outer_rate_bytes_per_s, inner_rate_bytes_per_s)
        self.tracks = self._layout(wanted, heads, densities)
        self.first_lbas = [track.first_lba for track in self.tracks]
        self.cylinders = self.tracks[-1].cylinder + 1
        self.track = self.tracks[0]
        self.free_ns = Fraction(0)

    def _densities(self, heads: int, zones: int, outer: int, inner: int) -> list[int]:
        """Sectors per track of each zone: a cylinder with its switches runs at the zone's rate."""
        switches_ns = (heads - 1) * self.head_switch_ns + self.track_to_track_ns
        cylinder_ns = heads * self.revolution_ns + switches_ns
        found = []
        for zone in range(zones):
            rate = outer - (outer - inner) * zone // max(zones - 1, 1)
            found.append(max(rate * cylinder_ns // NS_PER_S // heads // SECTOR_BYTES, 1))
        return found

    def _layout(self, wanted: int, heads: int, densities: list[int]) -> list[Track]:
        """Every track from the outside in, each turned by the time that reaching it takes."""
        cylinders_per_zone = max(math.ceil(Fraction(wanted, sum(densities) * heads)), 1)
        tracks: list[Track] = []
        lba, angle = 0, Fraction(0)
        for zone, sectors in enumerate(densities):
            if lba >= wanted:
                break
            for cylinder in range(cylinders_per_zone):
                for head in range(heads):
                    here = zone * cylinders_per_zone + cylinder
                    tracks.append(Track(here, head, lba, sectors, angle % self.revolution_ns))
                    lba += sectors
                    last = head == heads - 1
                    angle += self.track_to_track_ns if last else self.head_switch_ns
        return tracks

    def seek_ns(self, cylinders: int) -> int:
        """Square root up to a third of the full stroke, a straight line beyond; whole ns."""
        full = max(self.cylinders - 1, 1)
        third = max(full // 3, 2)
        if cylinders <= third:
            rise = self.average_ns - self.track_to_track_ns
            return self.track_to_track_ns + math.isqrt(rise**2 * (cylinders - 1) // (third - 1))
        rise = self.full_stroke_ns - self.average_ns
        beyond = min(cylinders, full) - third
        return self.average_ns + rise * beyond // max(full - third, 1)

    def _wait_for(self, angle_ns: Fraction, now: Fraction) -> Fraction:
        """The next time at which this angle is under the heads."""
        return now + (angle_ns - now - self.start_angle_ns) % self.revolution_ns

    def _switch_ns(self, target: Track) -> int:
        if target == self.track:
            return 0
        if target.cylinder == self.track.cylinder:
            return self.head_switch_ns
        return self.seek_ns(abs(target.cylinder - self.track.cylinder))

    def access(self, write: bool, lba: int, sectors: int, submitted_ns: int) -> Access:
        """Serves one command, submitted at a time at which the disk has nothing to do."""
        index = bisect_right(self.first_lbas, lba) - 1
        now = Fraction(submitted_ns + self.overhead_ns)
        if write and self.tracks[index] != self.track:
            now += self.write_settle_ns
        touched = 0
        while sectors > 0:
            target = self.tracks[index + touched]
            now += self._switch_ns(target)
            self.track = target
            first = lba - target.first_lba
            sector_ns = Fraction(self.revolution_ns, target.sectors)
            now = self._wait_for(target.angle_ns + first * sector_ns, now)
            here = min(sectors, target.sectors - first)
            now += here * sector_ns
            lba += here
            sectors -= here
            touched += 1
        return Access(now, touched)

    def serve(self, write: bool, lba: int, sectors: int, submitted_ns: int) -> Access:
        """The same, until the host has its answer: a read's last chunk is sent over the link."""
        media = self.access(write, lba, sectors, submitted_ns)
        if write:
            return media
        chunk = min(sectors * SECTOR_BYTES, LINK_CHUNK_BYTES)
        return Access(
            media.end_ns + math.ceil(Fraction(chunk * NS_PER_S, self.link_rate)), media.tracks
        )
