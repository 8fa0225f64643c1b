"""The machine below: processes, locks, leases, control groups, mounts, queues, files."""
