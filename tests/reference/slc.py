"""A slow, obvious dynamic SLC cache: a list of pages, everything counted anew each time.

Written from what harness/core/flash/policy/slc_dynamic.cpp says. Must take, fold and drop as many
pages as the fast one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor

from reference.ftl import BlockState, PageState, ReferenceFtl

STRETCH = 16
FEW = 2
SHRINK_PAGES = 2


@dataclass
class Cached:
    """A page that is in the cache."""

    block: BlockState
    """Another one from its erase on."""
    index: int


@dataclass
class ReferenceSlc:
    """The oracle. Sizes in bytes; counts in pages."""

    cache_bytes: int
    dynamic_ratio: float
    fold_first: bool
    unit_bytes: int
    pages: list[Cached] = field(default_factory=list)
    taken: int = 0
    folded_pressed: int = 0
    folded_idle: int = 0
    dropped: int = 0

    def host_page(self, ftl: ReferenceFtl, page: PageState) -> None:
        """The host has filled a page of the drive's."""
        free_units = ftl.layout.units - len(ftl.slot_of)
        size = self.cache_bytes + floor(self.dynamic_ratio * (free_units * self.unit_bytes))
        page_bytes = ftl.layout.units_per_page * self.unit_bytes

        def has_room(pages: int) -> bool:
            return (len(self.pages) + pages) * page_bytes <= size

        for _ in range(SHRINK_PAGES):
            if not has_room(0):
                self.press(ftl, self.pages.pop(0))
        if not has_room(1) and len(self.pages) >= STRETCH:
            stretch, self.pages = self.pages[:STRETCH], self.pages[STRETCH:]
            if sum(wanted(ftl, cached) for cached in stretch) <= FEW:
                for cached in stretch:
                    self.press(ftl, cached)
            else:
                self.pages += stretch
        while self.fold_first and size >= page_bytes and not has_room(1):
            self.press(ftl, self.pages.pop(0))
        if has_room(1):
            self.pages.append(Cached(page.block, page.index))
            self.taken += 1

    def press(self, ftl: ReferenceFtl, cached: Cached) -> None:
        """A page leaves, as its place is needed."""
        if wanted(ftl, cached):
            self.folded_pressed += 1
        else:
            self.dropped += 1

    def rest(self, ftl: ReferenceFtl) -> None:
        """The drive has had all the time that it wants."""
        still = sum(wanted(ftl, cached) for cached in self.pages)
        self.folded_idle += still
        self.dropped += len(self.pages) - still
        self.pages.clear()


def wanted(ftl: ReferenceFtl, cached: Cached) -> bool:
    """Whether anything of the page is still needed, and still there."""
    block, n = cached.block, ftl.layout.units_per_page
    if ftl.blocks[block.number] is not block:
        return False
    places = range(cached.index * n, (cached.index + 1) * n)
    return any(place in ftl.valid_slots(block) for place in places)
