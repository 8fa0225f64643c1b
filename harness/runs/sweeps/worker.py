"""`python -m harness.runs.sweeps.worker`: Dask's worker, after NumPy was told which code to use,
and with the settings that local workers have.

Takes what `dask worker` takes. That command imports NumPy before any preload.
"""

from __future__ import annotations

import dask
from distributed.cli.dask_worker import main

from harness.runs.sweeps.pool import CONFIG

if __name__ == "__main__":
    with dask.config.set(CONFIG):
        main()
