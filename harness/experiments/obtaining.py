"""How data that a clone has not can be had: in words, for whoever looks for it."""

from __future__ import annotations


def how_to_get(study: str, tier: str) -> str:
    """Recorded data by DVC, or a run of one's own."""
    run = {
        "simulated": "make reproduce",
        "emulated": "make emulated, as root",
        "hardware": f"harness run {study} --tier hardware",
    }[tier]
    pulled = "" if tier == "hardware" else "dvc pull, with a remote that has it (see README), or "
    return f"get it by {pulled}{run}"


def no_results(study: str, tier: str) -> str:
    """A line for who asks for results that are not here."""
    return f"{study}, tier {tier}: no results here; {how_to_get(study, tier)}"
