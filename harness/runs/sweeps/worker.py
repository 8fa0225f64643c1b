"""`python -m harness.runs.sweeps.worker`: Dask's worker, after NumPy was told which code to use,
and with the settings that local workers have.

Takes what `dask worker` takes. That command imports NumPy before any preload, and without a nanny
nobody gives it the environment that a nanny would.
"""

from __future__ import annotations

import os
import sys

import dask
from distributed.cli.dask_worker import main

from harness.runs.sweeps.pool import CONFIG, environment

if __name__ == "__main__":
    wanted = environment()
    if wanted.items() - os.environ.items():  # the C library reads them once, at its start
        command = [sys.executable, "-m", "harness.runs.sweeps.worker", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | wanted)  # noqa: S606 (this very program)
    with dask.config.set(CONFIG):
        main()
