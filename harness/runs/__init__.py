"""Runs: sessions of an experiment on a tier, their journal, claims and reports."""
