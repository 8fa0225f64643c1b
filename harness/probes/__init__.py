"""Probes: what the kernel did to a block device, recorded without a gap, and read back.

    with Recorder(Path("/dev/loop0"), Path("trace.parquet")) as recorder:
        ...                                   # the workload
    recorder.recording.rows                   # and trace.parquet is there, proven complete

`scripts` names the bpftrace scripts and their columns, `recorder` runs one and proves that nothing
is missing, `counters` has what the kernel counts by itself (no bpftrace, no root), `analysis` reads
a trace with DuckDB.
"""
