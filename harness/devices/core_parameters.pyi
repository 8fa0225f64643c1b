# Written by `make stub` from the core's descriptions (harness/core/base/describe.hpp).

from harness.devices.parameters import (
    Count,
    Name,
    Parameters,
    Rate,
    Ratio,
    Rotation,
    Size,
    Switch,
    Time,
)

class HddParameters(Parameters):
    """A hard disk; see harness/core/disk for what each one does."""

    capacity: Size
    """What the host sees; rounded up to whole cylinders."""
    rpm: Rotation
    """Of the platters."""
    heads: Count
    """One per surface."""
    zones: Count
    """Of equal width, each with its own sectors per track."""
    outer_rate: Rate
    """Sustained, that is with the switching between tracks."""
    inner_rate: Rate
    """The same, of the innermost zone."""
    head_switch: Time
    """To another head of the same cylinder."""
    track_to_track_seek: Time
    """To the next cylinder."""
    average_seek: Time
    """Over a third of the full stroke."""
    full_stroke_seek: Time
    """From the outermost to the innermost cylinder."""
    write_settle: Time
    """A write waits until the head is surely on its track."""
    link_rate: Rate
    """To the host."""
    command_overhead: Time
    """Controller time of every command, before it can be served."""
    cache: Size
    """Read segments and write cache share it."""
    read_segments: Count
    """That the cache is divided into for reads."""
    write_cache: Switch
    """A write is acknowledged when its data is in the cache."""
    destage_idle: Time
    """Quiet time after which dirty data is written back."""
    queue_depth: Count
    """Commands that the drive takes at once (NCQ)."""
    scheduler: Name
    """Which of the queued commands is served next."""

class SsdParameters(Parameters):
    """A flash drive; see harness/core/flash for what each one does."""

    capacity: Size
    """What the host sees."""
    overprovision: Ratio
    """Physical over logical size, minus 1; rounded up to blocks."""
    page: Size
    """Of one plane."""
    map_unit: Size
    """What the map maps: one logical page."""
    planes: Count
    """Of a die, programmed at once."""
    pages_per_block: Count
    """Of one plane."""
    channels: Count
    """That dies share for their transfers."""
    dies_per_channel: Count
    """That work side by side."""
    allocation: Name
    """What blocks are striped over: one die (per_die), or all."""
    read_page: Time
    """TR: cells to page register."""
    program_page: Time
    """TPROG, all planes of a die at once."""
    erase_block: Time
    """TBERS, all planes of a die at once."""
    slc_program_page: Time
    """Of a page in the SLC cache."""
    channel_rate: Rate
    """Between the dies and the controller."""
    jitter: Ratio | None = ...
    """Each operation on the cells takes 1 +- this, uniformly."""
    link_rate: Rate
    """To the host."""
    command_time: Time
    """Of the firmware, for every command; one after another."""
    write_command_time: Time | None = ...
    """For a write, which also needs a place; else the same."""
    read_latency: Time
    """Of every read, on top: occupies nothing."""
    write_latency: Time
    """From the last byte over the link to the acknowledgement."""
    write_buffer: Size
    """RAM for what is not programmed yet."""
    power_loss_protection: Switch
    """What was acknowledged survives a power cut."""
    slc_cache: Size
    """Written first and at SLC speed; emptied when idle."""
    gc_policy: Name
    """Which closed block of a group is collected next."""
    gc_choices: Count | None = ...
    """The d of d_choices; the others take no notice."""
    gc_placement: Name
    """Where a collection puts what it copies."""
    gc_pace: Name
    """How much of a collection is done before it must be."""
    reserve_blocks: Count
    """Free blocks per group that are kept for collections."""
    streams: Count
    """That the drive can keep apart."""
    placement: Name
    """Which stream a write belongs to."""
    trim: Name
    """What the drive does with data that is no longer needed."""
    trim_command_time: Time
    """Of the firmware, per command."""
    trim_range_time: Time
    """... per range."""
    trim_buffer_time: Time
    """... per slice, to look it up in the buffer."""
    trim_map_time: Time
    """... per slice, to clear its map entry."""
    trim_slice: Size
    """What a range is handled in."""
    trim_queued: Switch
    """False: SATA's non-NCQ command, alone in the drive."""
    trim_max_ranges: Count
    """Of one command."""
    trim_list_time: Time | None = ...
    """Of delayed: a search of what is pending, or of one place in the write list."""
    trim_pending_ranges: Count | None = ...
    """Of delayed: that the table holds."""
    trim_list_entries: Count | None = ...
    """Of delayed: that the write list holds."""
    trim_merge: Switch | None = ...
    """Of delayed: ranges that touch or overlap become one."""
    trim_step: Count | None = ...
    """Of delayed: slices at once, which no command interrupts; a power of two."""
    trim_batch_map: Ratio | None = ...
    """Of delayed: of trim_map_time, for each slice of a step but its first."""
    background_gc: Switch
    """The drive collects when it is idle."""
    background_idle: Time
    """Quiet time after which the drive works for itself."""
    background_target: Count | None = ...
    """Free blocks per group that it then aims at, above the reserve."""
    queue_depth: Count
    """Commands that the drive takes at once."""

class HostParameters(Parameters):
    """The machine above the device; see harness/core/host/block_layer.hpp."""

    cores: Count
    """Of the machine."""
    submit_cpu: Time
    """System call, block layer and driver, per transfer."""
    complete_cpu: Time
    """Interrupt and wake-up, per transfer."""
    max_request: Size
    """Larger transfers are split."""
    io_scheduler: Name
    """Which of the waiting requests goes to the device next."""
    threads_per_core: Count | None = ...
    """Hardware threads."""
    smt_gain: Ratio | None = ...
    """What a core's second thread adds, as a share of the first."""
