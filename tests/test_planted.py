"""Can the tests fail? tools/planted-bugs, and the lists that it works through."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import REPOSITORY, need


def planted_bugs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "tools" / "planted-bugs"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_planted_bug_can_still_be_planted() -> None:
    """Its text occurs exactly once, and the test that is to catch it exists."""
    done = planted_bugs("--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.builds
def test_every_planted_bug_is_caught() -> None:
    need("cmake")
    done = planted_bugs()
    if done.returncode == 2 and "GTest" in done.stderr:
        pytest.skip("GoogleTest is not installed (libgtest-dev)")
    assert done.returncode == 0, done.stdout + done.stderr
