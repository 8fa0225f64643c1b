"""What is computed does not depend on which of its codes NumPy would choose for the processor."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness import same_bits

HIDDEN = "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
ENVIRONMENTS = {
    "nothing asked for": {},
    "as on an old processor": {"NPY_DISABLE_CPU_FEATURES": HIDDEN},
    "a part hidden": {"NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    "something enabled": {"NPY_ENABLE_CPU_FEATURES": "X86_V3"},
}
LOGARITHMS = (
    "import hashlib, numpy as np; x = np.linspace(1e-3, 1e3, 1_000_001);"
    "print(hashlib.sha256(np.log(x).tobytes() + np.exp(-x).tobytes() + (x**0.3).tobytes())"
    ".hexdigest())"
)


def run(program: str, environment: dict[str, str]) -> str:
    clean = {name: v for name, v in os.environ.items() if not name.startswith("NPY_")}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_numpy_takes_the_same_code_everywhere() -> None:
    program = f"import harness; {LOGARITHMS}; print(harness.same_bits.beyond())"
    said = {run(program, environment) for environment in ENVIRONMENTS.values()}
    assert len(said) == 1
    [one] = said
    assert one.endswith("[]")


def test_the_tests_and_whatever_they_start_do_so_too() -> None:
    assert same_bits.beyond() == []
    assert os.environ["NPY_DISABLE_CPU_FEATURES"] == HIDDEN


def test_numpy_before_us_is_noticed_and_nothing_is_published() -> None:
    program = (
        "import numpy, harness; from harness import same_bits; print(same_bits.beyond());"
        "from harness.runs.session import Session; from harness.errors import BadParameter\n"
        "try: Session.publish(None)\n"
        "except BadParameter as error: print(error)\n"
        "except AttributeError: print('it began')\n"
    )
    beyond, *said = run(program, ENVIRONMENTS["nothing asked for"]).splitlines()
    if beyond == "[]":
        pytest.skip("this processor has nothing beyond what all have")
    assert said
    assert said[0].startswith("NumPy was imported before harness and uses ")
    old = run(program, ENVIRONMENTS["as on an old processor"]).splitlines()
    assert old == ["[]", "it began"]
