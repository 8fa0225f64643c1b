"""What was found after a power cut, what of it is damage, and how sure a share of cuts is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import scipy


@dataclass(frozen=True)
class Outcome:
    """One cut: what was lost by the drive, and what came back. Whether-or-not are 0 or 1.

    `moment_s`: when, counted from when pages were being written. `doubtful_blocks` of 4 KiB were
    written, but not durable; `lost_blocks` of them have older content now. `unanswered_requests`
    failed. `failed_mounts`: ext4 could not replay its journal; nothing further is known then.
    `file_system_errors`: e2fsck found some afterwards. `torn_pages`: InnoDB pages whose checksum
    was wrong before the server recovered, which it may repair from its doublewrite buffer.
    `failed_starts`: the server refused, or ext4 could not show it its files. `failed_checks`: it
    ended, or could not read a table or a file, while the data was checked. `corrupt_tables`: the
    server's own CHECK TABLE complains, of indexes that disagree, for instance. `bad_pages`: pages
    whose checksum was wrong at the end.
    `torn_first_pages`, `bad_first_pages`: of these, the first of their files, which MariaDB does
    not repair (docs/validation.md). `lost_commits`: acknowledged before the cut and gone;
    `acknowledged_commits` had to be there; `commits_counted`: the server answered which are.

    `journaled_pages`: InnoDB pages that were written to the page cache while the drive took its
    time, where ext4 journals data; `split_pages` of them lie in two transactions of its journal.
    """

    moment_s: float
    doubtful_blocks: int
    lost_blocks: int
    unanswered_requests: int
    failed_mounts: int = 0
    file_system_errors: int = 0
    pages_checked: int = 0
    torn_pages: int = 0
    failed_starts: int = 0
    failed_checks: int = 0
    corrupt_tables: int = 0
    bad_pages: int = 0
    violated_conditions: int = 0
    acknowledged_commits: int = 0
    commits_counted: int = 0
    lost_commits: int = 0
    journaled_pages: int = 0
    split_pages: int = 0
    torn_first_pages: int = 0
    bad_first_pages: int = 0

    @property
    def damaged(self) -> bool:
        """Whether something was not as before the cut after all had recovered."""
        return any(
            (
                self.failed_mounts,
                self.file_system_errors,
                self.failed_starts,
                self.failed_checks,
                self.corrupt_tables,
                self.bad_pages,
                self.violated_conditions,
                self.lost_commits,
            )
        )


def metrics(outcomes: Sequence[Outcome]) -> dict[str, int | float]:
    """Sums over a batch, and in how many cuts there was something of a kind."""
    sums = {
        field.name: sum(int(getattr(each, field.name)) for each in outcomes)
        for field in fields(Outcome)
        if field.name != "moment_s"
    }
    return {
        "cuts": len(outcomes),
        "damaged_cuts": sum(each.damaged for each in outcomes),
        "cuts_with_torn_pages": sum(each.torn_pages > 0 for each in outcomes),
        "cuts_with_bad_pages": sum(each.bad_pages > 0 for each in outcomes),
        **sums,
    }


def series(outcomes: Sequence[Outcome]) -> dict[str, list[int] | list[float]]:
    """One entry per cut, in their order."""
    found: dict[str, list[int] | list[float]] = {
        f"cut_{field.name}": [getattr(each, field.name) for each in outcomes]
        for field in fields(Outcome)
    }
    return {**found, "cut_damaged": [int(each.damaged) for each in outcomes]}


def interval(count: int, cuts: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share of cuts, of which `count` were so (Wilson, JASA 1927)."""
    found = scipy.stats.binomtest(count, cuts).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)
