"""A slow, obvious translation layer: lists and dictionaries, no clever counting.

Written from what harness/core/flash/ftl.hpp and the policies' comments say. Must put every unit
into the same slot as the fast one, and collect the same blocks at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf

MASK = (1 << 64) - 1


class Prng:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK

    def next(self) -> int:
        """64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)

    def below(self, bound: int) -> int:
        """Uniform on [0, bound)."""
        return self.next() * bound >> 64


@dataclass(frozen=True)
class Layout:
    """Sizes of a drive; blocks are those that garbage collection erases as one."""

    units: int
    groups: int
    blocks_per_group: int
    pages_per_block: int
    units_per_page: int
    unit_sectors: int = 8
    buffer_units: int = 64

    @property
    def units_per_block(self) -> int:
        """Slots of a block."""
        return self.pages_per_block * self.units_per_page


@dataclass(frozen=True)
class Rules:
    """Names as in a profile."""

    gc_policy: str = "greedy"
    gc_choices: int = 10
    gc_placement: str = "separate"
    gc_pace: str = "whole"
    reserve_blocks: int = 1
    streams: int = 1
    seed: int = 0


@dataclass
class BlockState:
    """What is known about one block."""

    number: int
    held: list[int | None]
    """By slot: which unit was written there last; None before. Valid while the map agrees."""
    pages_opened: int = 0
    pages_complete: int = 0
    closed_at: int | None = None
    erases: int = 0
    stream: int = 0


@dataclass
class PageState:
    """A page that takes units."""

    block: BlockState
    index: int
    slots: list[int]
    """Those that are left."""


@dataclass
class Partial:
    """A unit of which the host has written a part, in the buffer."""

    sectors: set[int]
    stream: int
    """Of the part that came last."""


@dataclass
class Collection:
    """A block that is being collected, and the page to look at next."""

    victim: BlockState
    page: int = 0


@dataclass
class ReferenceFtl:
    """The oracle. A slot is numbered group by group, block by block, page by page."""

    layout: Layout
    rules: Rules
    slot_of: dict[int, int] = field(default_factory=dict)
    host: int = 0
    copied: int = 0
    padded: int = 0
    trimmed: int = 0
    coalesced: int = 0
    merge_reads: int = 0
    gc_page_reads: int = 0

    def __post_init__(self) -> None:
        n = self.layout
        self.blocks = [
            BlockState(b, [None] * n.units_per_block) for b in range(n.groups * n.blocks_per_group)
        ]
        self.free = [deque(self.of_group(g)) for g in range(n.groups)]
        self.host_block: dict[tuple[int, int], BlockState] = {}
        self.host_page: dict[int, PageState] = {}
        self.partial: dict[int, Partial] = {}
        """By unit, in the order in which they came."""
        self.last_group = dict.fromkeys(range(self.rules.streams), n.groups - 1)
        self.gc_block: dict[tuple[int, int], BlockState] = {}
        self.gc_page: dict[tuple[int, int], PageState] = {}
        self.collecting: dict[int, Collection] = {}
        self.closings = 0
        self.random = Prng(self.rules.seed)
        self.completed: list[tuple[int, int]] = []
        """(block, page) of host pages that were completed since `begin_request`."""
        self.on_host_page: Callable[[PageState], None] = lambda _: None
        """Hears of each page that the host has filled, before it is programmed."""

    # --- what the host asks for

    def begin_request(self) -> None:
        """Everything before has reached the dies."""
        self.completed.clear()

    def write(self, unit: int, stream: int) -> None:
        """One unit. What is still in RAM is replaced there and takes no new slot."""
        waited = self.partial.pop(unit, None) is not None
        self.coalesced += waited or self.in_ram(unit)
        if waited or not self.in_ram(unit):
            self.place(unit, stream)

    def write_part(self, unit: int, sectors: set[int], stream: int) -> None:
        """Some sectors of a unit, counted from its begin. The unit waits for the others."""
        if unit not in self.partial:
            if self.in_ram(unit):
                self.coalesced += 1
                return
            while len(self.partial) >= self.most_partial():
                self.leave(next(iter(self.partial)))
            self.partial[unit] = Partial(set(), stream)
        waiting = self.partial[unit]
        self.coalesced += bool(waiting.sectors & sectors)
        waiting.sectors |= sectors
        waiting.stream = stream
        if self.is_whole(waiting):
            self.leave(unit)

    def read(self, unit: int, sectors: set[int]) -> None:
        """Of a unit that waits, what is missing is read from flash: then it waits no more."""
        waiting = self.partial.get(unit)
        if waiting and not sectors <= waiting.sectors and unit in self.slot_of:
            self.leave(unit)

    def leave(self, unit: int) -> None:
        """A unit that was written in part goes to its page, with the rest of its old content."""
        waiting = self.partial.pop(unit)
        self.merge_reads += unit in self.slot_of and not self.is_whole(waiting)
        self.place(unit, waiting.stream)

    def is_whole(self, waiting: Partial) -> bool:
        """Whether it waits for nothing."""
        return len(waiting.sectors) == self.layout.unit_sectors

    def most_partial(self) -> int:
        """Half of the buffer; a full one always has a page that is complete."""
        n = self.layout
        in_pages = self.rules.streams * (n.units_per_page - 1)
        return min(n.buffer_units // 2, n.buffer_units - in_pages - 1)

    def place(self, unit: int, stream: int) -> None:
        """To the stream's open page."""
        self.slot_of.pop(unit, None)
        if stream not in self.host_page:
            self.open_host_page(stream)
        page = self.host_page[stream]
        self.put(unit, page)
        self.host += 1
        if not page.slots:
            del self.host_page[stream]
            self.complete_host_page(page)

    def trim(self, unit: int) -> None:
        """The unit is no longer needed. One that only waits in the buffer is on no map."""
        self.coalesced += self.partial.pop(unit, None) is not None
        self.trimmed += self.slot_of.pop(unit, None) is not None

    def flush(self) -> None:
        """Nothing waits for its rest any more. Pads the open host pages."""
        while self.partial:
            self.leave(next(iter(self.partial)))
        for stream in sorted(self.host_page):
            page = self.host_page.pop(stream)
            self.padded += len(page.slots)
            self.complete_host_page(page)

    # --- where things are

    def of_group(self, group: int) -> list[BlockState]:
        first = group * self.layout.blocks_per_group
        return self.blocks[first : first + self.layout.blocks_per_group]

    def group_of(self, block: BlockState) -> int:
        return block.number // self.layout.blocks_per_group

    def first_slot(self, block: BlockState) -> int:
        return block.number * self.layout.units_per_block

    def valid_slots(self, block: BlockState) -> list[int]:
        first = self.first_slot(block)
        held = enumerate(block.held)
        return [i for i, unit in held if unit is not None and self.slot_of.get(unit) == first + i]

    def live(self, group: int) -> int:
        per_group = self.layout.blocks_per_group * self.layout.units_per_block
        return sum(slot // per_group == group for slot in self.slot_of.values())

    def in_ram(self, unit: int) -> bool:
        if unit not in self.slot_of:
            return False
        block, place = divmod(self.slot_of[unit], self.layout.units_per_block)
        page = place // self.layout.units_per_page
        opened = [(p.block.number, p.index) for p in self.host_page.values()]
        return (block, page) in opened + self.completed

    # --- pages and blocks

    def put(self, unit: int, page: PageState) -> None:
        place = page.slots.pop(0)
        page.block.held[place] = unit
        self.slot_of[unit] = self.first_slot(page.block) + place

    def open_page(self, block: BlockState) -> PageState:
        n = self.layout.units_per_page
        index = block.pages_opened
        block.pages_opened += 1
        return PageState(block, index, list(range(index * n, (index + 1) * n)))

    def complete(self, page: PageState) -> None:
        page.block.pages_complete += 1
        if page.block.pages_complete == self.layout.pages_per_block:
            self.closings += 1
            page.block.closed_at = self.closings

    def complete_host_page(self, page: PageState) -> None:
        self.on_host_page(page)
        self.complete(page)
        self.completed.append((page.block.number, page.index))

    def is_used_up(self, block: BlockState | None) -> bool:
        return block is None or block.pages_opened == self.layout.pages_per_block

    def open_block(self, group: int, stream: int) -> BlockState:
        block = self.free[group].popleft()
        block.stream = stream
        return block

    def open_host_page(self, stream: int) -> None:
        group = self.next_group(stream)
        at = (group, stream)
        if self.rules.gc_pace == "paced":
            self.collect_paced(group, stream)
        while self.is_used_up(self.host_block.get(at)):
            if len(self.free[group]) > self.rules.reserve_blocks:
                self.host_block[at] = self.open_block(group, stream)
            else:
                self.collect(group, self.layout.units_per_block)
        self.host_page[stream] = self.open_page(self.host_block[at])

    def next_group(self, stream: int) -> int:
        """In turn, but for those that are full of live data."""
        group = self.last_group[stream]
        for _ in range(self.layout.groups):
            group = (group + 1) % self.layout.groups
            if self.live(group) + self.layout.units_per_page <= self.live_limit():
                break
        else:
            raise AssertionError("all groups are full")
        self.last_group[stream] = group
        return group

    def live_limit(self) -> int:
        """With every other block closed, one of them has an invalid slot; less one page."""
        rules, n = self.rules, self.layout
        for_copies = 1 if rules.gc_placement == "separate" else rules.streams
        if rules.gc_placement == "mixed" and n.units_per_page == 1:
            for_copies = 0
        unusable = rules.streams + for_copies + rules.reserve_blocks + (rules.gc_pace == "paced")
        return (n.blocks_per_group - unusable) * n.units_per_block - n.units_per_page

    # --- garbage collection

    def collect_paced(self, group: int, stream: int) -> None:
        """From one block before it must: so many copies per page that they are done in time.

        In time is while the host writes what it still can, and no more than the block gains.
        """
        free = len(self.free[group])
        if free > self.rules.reserve_blocks + 1:
            return
        per_block = self.layout.pages_per_block
        open_block = self.host_block.get((group, stream))
        left = per_block - open_block.pages_opened if open_block else 0
        left += per_block * max(0, free - self.rules.reserve_blocks)
        collection = self.collecting.get(group) or self.choose(group)
        waiting = len(self.valid_slots(collection.victim))
        unseen = (per_block - collection.page) * self.layout.units_per_page
        pages = max(1, min(left, (unseen - waiting) // self.layout.units_per_page))
        self.collect(group, ceil(max(1, waiting) / pages))

    def choose(self, group: int) -> Collection:
        closed = [b for b in self.of_group(group) if b.closed_at is not None]
        policy: Callable[[int, list[BlockState]], BlockState] = getattr(self, self.rules.gc_policy)
        self.collecting[group] = Collection(policy(group, closed))
        return self.collecting[group]

    def collect(self, group: int, units: int) -> None:
        """Copies at least so many units, page by page, or all; then erases the block."""
        collection = self.collecting.get(group) or self.choose(group)
        victim = collection.victim
        moved = 0
        while moved < units and collection.page < self.layout.pages_per_block:
            moved += self.copy_page(victim, collection.page)
            collection.page += 1
        if collection.page < self.layout.pages_per_block:
            return
        assert not self.valid_slots(victim)
        del self.collecting[group]
        erased = BlockState(victim.number, [None] * self.layout.units_per_block)
        erased.erases = victim.erases + 1
        self.blocks[victim.number] = erased
        self.free[group].append(erased)

    def copy_page(self, victim: BlockState, page: int) -> int:
        n = self.layout.units_per_page
        valid = [i for i in self.valid_slots(victim) if i // n == page]
        self.gc_page_reads += bool(valid)
        for i in valid:
            unit = victim.held[i]
            assert unit is not None
            self.append_copy(unit, victim)
        return len(valid)

    def append_copy(self, unit: int, victim: BlockState) -> None:
        group = self.group_of(victim)
        at = (group, 0 if self.rules.gc_placement == "separate" else victim.stream)
        blocks = self.host_block if self.rules.gc_placement == "mixed" else self.gc_block
        if at not in self.gc_page:
            if self.is_used_up(blocks.get(at)):
                blocks[at] = self.open_block(group, victim.stream)
            self.gc_page[at] = self.open_page(blocks[at])
        page = self.gc_page[at]
        self.put(unit, page)
        self.copied += 1
        if not page.slots:
            del self.gc_page[at]
            self.complete(page)

    # --- victims: (group, closed blocks in order) -> block

    def greedy(self, _group: int, closed: list[BlockState]) -> BlockState:
        return min(closed, key=lambda b: len(self.valid_slots(b)))

    def fifo(self, _group: int, closed: list[BlockState]) -> BlockState:
        return min(closed, key=lambda b: b.closed_at or 0)

    def cost_benefit(self, _group: int, closed: list[BlockState]) -> BlockState:
        def score(block: BlockState) -> float:
            u = len(self.valid_slots(block)) / self.layout.units_per_block
            age = self.closings - (block.closed_at or 0) + 1
            return inf if u == 0 else (1 - u) / (2 * u) * age

        return max(closed, key=score)

    def d_choices(self, group: int, closed: list[BlockState]) -> BlockState:
        drawn: list[BlockState] = []
        while len(drawn) < self.rules.gc_choices:
            block = self.of_group(group)[self.random.below(self.layout.blocks_per_group)]
            if block.closed_at is not None:
                drawn.append(block)
        return min(drawn, key=lambda b: len(self.valid_slots(b)))
