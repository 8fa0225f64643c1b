"""`python -m harness.runs.sweeps.scheduler`: Dask's scheduler, with the settings of a local one.

Takes what `dask scheduler` takes. That command knows nothing of a client's settings: workers lost
with a point are counted, and a sweep without any worker is ended, by the scheduler.
"""

from __future__ import annotations

import dask
from distributed.cli.dask_scheduler import main

from harness.runs.sweeps.pool import CONFIG

if __name__ == "__main__":
    with dask.config.set(CONFIG):
        main()
