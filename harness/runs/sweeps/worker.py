"""`python -m harness.runs.sweeps.worker`: Dask's worker, after NumPy was told which code to use.

Takes what `dask worker` takes. That command imports NumPy before any preload.
"""

from __future__ import annotations

from distributed.cli.dask_worker import main

if __name__ == "__main__":
    main()
