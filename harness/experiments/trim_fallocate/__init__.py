"""TRIM overhead in hash join, and fallocate against it (papers/trim_fallocate.md)."""
