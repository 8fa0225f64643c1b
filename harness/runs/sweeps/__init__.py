"""Sweeps: a study on many plausible machines, and what that says of its paper's claims."""
