"""What comparisons of the two modelled tiers have in common."""

from __future__ import annotations

from harness.errors import BadParameter
from harness.experiments.base import Results, Runs
from harness.experiments.obtaining import no_results


def here_or_published(runs: Runs, here: Results) -> Results:
    """What was run on tier emulated here, or else what is published of it.

    What that tier measures does not depend on the model beside it, so what was published may be
    laid beside a model that has changed since. Raises BadParameter if there is neither.
    """
    found = runs.published("emulated") if here.table.empty else here
    if found.table.empty:
        raise not_run(runs)
    return found


def not_run(runs: Runs) -> BadParameter:
    """The error that says so."""
    return BadParameter(no_results(runs.name, "emulated"))
