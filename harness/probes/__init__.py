"""Probes: what the kernel did to a block device, recorded without a gap, and read back.

    with Recorder(Path("/dev/loop0"), Path("trace.parquet")) as recorder:
        ...                                   # the workload
    recorder.recording.rows                   # and trace.parquet is there, proven complete

`scripts` has the probes, two files each. `recorder` runs one and proves that nothing is missing:
`decoding` makes rows of what is printed, `proof` compares them. `counters` has what the kernel
counts by itself (no bpftrace, no root), `analysis` reads a trace with DuckDB.
"""
