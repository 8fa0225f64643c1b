"""A plugin of the guest's pytest: writes each outcome as soon as it is known, as a line of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the outcomes go."""
    parser.addoption("--outcomes", type=Path, required=True, help="a file for outcomes")


def pytest_configure(config: pytest.Config) -> None:
    """Reports into that file."""
    config.pluginmanager.register(_Reporter(config.getoption("--outcomes")))


class _Reporter:
    """Pytest's reports as lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call and tear-down of a test."""
        self._write(report.nodeid, report.outcome, _said(report), report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What could not be imported."""
        if report.failed:
            self._write(report.nodeid, "failed", _said(report), 0.0)

    def _write(self, ident: str, outcome: str, said: str, duration_s: float) -> None:
        row = {"id": ident, "outcome": outcome, "said": said, "duration_s": duration_s}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _said(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext
