"""Wear and write amplification of real drives: what they count, and what two readings mean.

    before = reading.read(Path("/dev/nvme0n1"), "nvme")
    ...                                             # whatever is measured
    change = counters.between(before, reading.read(Path("/dev/nvme0n1"), "nvme"))
    print(change.waf_text)                          # a ratio with its bounds, or why there is none

All but `reading`, which asks drives, is pure: bytes and JSON in, numbers out.
"""
