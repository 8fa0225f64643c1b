# Written by `make stub` from the core's descriptions (harness/core/base/describe.hpp).

from harness.devices import parameters as kinds

class HddParameters(kinds.Parameters):
    """A hard disk; see harness/core/disk for what each one does."""

    capacity: kinds.Size
    """What the host sees; rounded up to whole cylinders."""
    rpm: kinds.Rotation
    """Of the platters."""
    heads: kinds.Count
    """One per surface."""
    zones: kinds.Count
    """Of equal width, each with its own sectors per track."""
    outer_rate: kinds.Rate
    """Sustained, that is with the switching between tracks."""
    inner_rate: kinds.Rate
    """The same, of the innermost zone."""
    head_switch: kinds.Time
    """To another head of the same cylinder."""
    track_to_track_seek: kinds.Time
    """To the next cylinder."""
    average_seek: kinds.Time
    """Over a third of the full stroke."""
    full_stroke_seek: kinds.Time
    """From the outermost to the innermost cylinder."""
    write_settle: kinds.Time
    """A write waits until the head is surely on its track."""
    link_rate: kinds.Rate
    """To the host."""
    command_overhead: kinds.Time
    """Controller time of every command, before it can be served."""
    cache: kinds.Size
    """Read segments and write cache share it."""
    read_segments: kinds.Count
    """That the cache is divided into for reads."""
    write_cache: kinds.Switch
    """A write is acknowledged when its data is in the cache."""
    write_share: kinds.Ratio | None = ...
    """Writes' part of the cache, reads have the rest; 0: all of it for each."""
    destage_idle: kinds.Time
    """Quiet time after which dirty data is written back."""
    queue_depth: kinds.Count
    """Commands that the drive takes at once (NCQ)."""
    scheduler: kinds.Name
    """Which of the queued commands is served next."""

class SsdParameters(kinds.Parameters):
    """A flash drive; see harness/core/flash for what each one does."""

    capacity: kinds.Size
    """What the host sees."""
    overprovision: kinds.Ratio
    """Physical over logical size, minus 1; rounded up to blocks."""
    page: kinds.Size
    """Of one plane."""
    map_unit: kinds.Size
    """What the map maps: one logical page."""
    planes: kinds.Count
    """Of a die, programmed at once."""
    pages_per_block: kinds.Count
    """Of one plane."""
    channels: kinds.Count
    """That dies share for their transfers."""
    dies_per_channel: kinds.Count
    """That work side by side."""
    allocation: kinds.Name
    """What blocks are striped over: one die (per_die), or all."""
    read_page: kinds.Time
    """TR: cells to page register."""
    program_page: kinds.Time
    """TPROG, all planes of a die at once."""
    erase_block: kinds.Time
    """TBERS, all planes of a die at once."""
    slc_program_page: kinds.Time
    """Of a page in the SLC cache."""
    channel_rate: kinds.Rate
    """Between the dies and the controller."""
    jitter: kinds.Ratio | None = ...
    """Each operation on the cells takes 1 +- this, uniformly."""
    link_rate: kinds.Rate
    """To the host."""
    command_time: kinds.Time
    """Of the firmware, for every command; one after another."""
    write_command_time: kinds.Time | None = ...
    """For a write, which also needs a place; else the same."""
    read_latency: kinds.Time
    """Of every read, on top: occupies nothing."""
    write_latency: kinds.Time
    """From the last byte over the link to the acknowledgement."""
    write_buffer: kinds.Size
    """RAM for what is not programmed yet."""
    power_loss_protection: kinds.Switch
    """What was acknowledged survives a power cut."""
    slc_cache: kinds.Size
    """Written first and at SLC speed; emptied when idle."""
    slc: kinds.Name | None = ...
    """How large the SLC cache is, and what leaves it when."""
    slc_dynamic: kinds.Ratio | None = ...
    """Of dynamic: for each byte that holds no data, so much is added to slc_cache."""
    slc_fold_first: kinds.Switch | None = ...
    """Of dynamic: a full cache makes room and the host waits; else it writes past it."""
    gc_policy: kinds.Name
    """Which closed block of a group is collected next."""
    gc_choices: kinds.Count | None = ...
    """The d of d_choices; the others take no notice."""
    gc_placement: kinds.Name
    """Where a collection puts what it copies."""
    gc_pace: kinds.Name
    """How much of a collection is done before it must be."""
    reserve_blocks: kinds.Count
    """Free blocks per group that are kept for collections."""
    streams: kinds.Count
    """That the drive can keep apart."""
    placement: kinds.Name
    """Which stream a write belongs to."""
    trim: kinds.Name
    """What the drive does with data that is no longer needed."""
    trim_command_time: kinds.Time
    """Of the firmware, per command."""
    trim_range_time: kinds.Time
    """... per range."""
    trim_buffer_time: kinds.Time
    """... per slice, to look it up in the buffer."""
    trim_map_time: kinds.Time
    """... per slice, to clear its map entry."""
    trim_slice: kinds.Size
    """What a range is handled in."""
    trim_queued: kinds.Switch
    """False: SATA's non-NCQ command, alone in the drive, as its flush then is."""
    trim_max_ranges: kinds.Count
    """Of one command."""
    trim_list_time: kinds.Time | None = ...
    """Of delayed: a search of what is pending, or of one place in the write list."""
    trim_pending_ranges: kinds.Count | None = ...
    """Of delayed: that the table holds."""
    trim_list_entries: kinds.Count | None = ...
    """Of delayed: that the write list holds."""
    trim_merge: kinds.Switch | None = ...
    """Of delayed: ranges that touch or overlap become one."""
    trim_step: kinds.Count | None = ...
    """Of delayed: slices at once, which no command interrupts; a power of two."""
    trim_batch_map: kinds.Ratio | None = ...
    """Of delayed: of trim_map_time, for each slice of a step but its first."""
    background_gc: kinds.Switch
    """The drive collects when it is idle."""
    background_idle: kinds.Time
    """Quiet time after which the drive works for itself."""
    background_target: kinds.Count | None = ...
    """Free blocks per group that it then aims at, above the reserve."""
    queue_depth: kinds.Count
    """Commands that the drive takes at once."""

class HostParameters(kinds.Parameters):
    """The machine above the device; see harness/core/host/block_layer.hpp."""

    cores: kinds.Count
    """Of the machine."""
    submit_cpu: kinds.Time
    """System call, block layer and driver, per transfer."""
    complete_cpu: kinds.Time
    """Interrupt and wake-up, per transfer."""
    max_request: kinds.Size
    """Larger transfers are split."""
    io_scheduler: kinds.Name
    """Which of the waiting requests goes to the device next."""
    threads_per_core: kinds.Count | None = ...
    """Hardware threads."""
    smt_gain: kinds.Ratio | None = ...
    """What a core's second thread adds, as a share of the first."""
