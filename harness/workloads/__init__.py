"""Workloads: what the experiments feed to their systems."""
