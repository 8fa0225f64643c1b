"""Workers, by dask.distributed: processes here, or those of a scheduler that somebody has started.

Batches grow until one takes about a second, so that small points cost little and large ones are
handed out one by one. What a lost worker had is done again by another; a batch that several workers
were lost with is taken apart, until the point that ends them is alone.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed
from distributed.scheduler import NoWorkerError

from harness.errors import HarnessError
from harness.runs.sweeps.work import Outcome, Work, run_batch

_BATCH_S: Final = 1.0
_MOST_IN_BATCH: Final = 256
_BATCHES_PER_WORKER: Final = 2
_LOSSES: Final = 10
"""Of workers with one batch, before it is taken apart."""
_NOBODY_S: Final = 300
"""Without any worker, after which a sweep ends."""
_ENVIRONMENT: Final = "distributed.nanny.pre-spawn-environ."

CONFIG: Final = {
    "distributed.scheduler.allowed-failures": _LOSSES,
    "distributed.scheduler.no-workers-timeout": f"{_NOBODY_S}s",
    # A point may take many minutes, and says nothing meanwhile.
    "distributed.scheduler.worker-ttl": None,
    "distributed.admin.tick.limit": "1h",
    # Idle, Dask takes 2.1 % of a core here and 1.5 % in each worker; less often, 1.0 % and 0.4 %.
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    # Points ask for tens of MB and give them back. Dask has its workers return all of that to the
    # kernel each time, which clears it again: a third of a small point's time.
    f"{_ENVIRONMENT}MALLOC_ARENA_MAX": 1,
    f"{_ENVIRONMENT}MALLOC_MMAP_THRESHOLD_": 1 << 30,
    f"{_ENVIRONMENT}MALLOC_TRIM_THRESHOLD_": 1 << 30,
}
"""What Dask is told, in the client and in whatever starts schedulers and workers."""


def environment() -> dict[str, str]:
    """What a worker's process begins with, whoever starts it."""
    return {
        name.removeprefix(_ENVIRONMENT): str(value)
        for name, value in CONFIG.items()
        if name.startswith(_ENVIRONMENT)
    }


class Pool:
    """Workers to run batches on. `dashboard` is the address of a page that shows them at work."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.dashboard: str = client.dashboard_link
        self._size = 1.0
        self._asked = 0.0
        self._known = 1
        self._suspects: set[str] = set()

    def run(
        self, works: Sequence[Work], needless: Callable[[str], bool]
    ) -> Iterator[list[Outcome]]:
        """Outcomes as they come, of each work once, but those whose key is `needless` by then.

        Raises HarnessError if the scheduler is lost, or for minutes has no worker, and WrongWorker.
        """
        waiting = deque(works)
        running: dict[Future, list[Work]] = {}
        done = as_completed(loop=self.client.loop)

        def hand_out() -> None:
            while waiting and len(running) < _BATCHES_PER_WORKER * self._workers():
                batch = [work for work in self._take(waiting) if not needless(work.key)]
                if not batch:
                    continue
                future = self.client.submit(run_batch, batch, pure=False)
                running[future] = batch
                done.add(future)

        try:
            hand_out()
            while running:
                future = next(done)
                batch = running.pop(future)
                if future.status == "finished":
                    outcomes = future.result()
                    self._learn(outcomes)
                    yield outcomes
                else:
                    yield from self._lost(future, batch, waiting)
                hand_out()
        finally:
            for future in running:
                with contextlib.suppress(Exception):  # whatever the connection still can do
                    future.cancel()

    def _take(self, waiting: deque[Work]) -> list[Work]:
        """As many as take about a second, but so that no worker is without at the end."""
        fair = len(waiting) // (_BATCHES_PER_WORKER * self._workers()) + 1
        batch = [waiting.popleft()]
        while (
            waiting and len(batch) < min(int(self._size), fair) and not self._alone(batch, waiting)
        ):
            batch.append(waiting.popleft())
        return batch

    def _alone(self, batch: list[Work], waiting: deque[Work]) -> bool:
        """Whether one of these was in a batch with which several workers were lost."""
        return bool(self._suspects) and bool(self._suspects & {batch[0].key, waiting[0].key})

    def _learn(self, outcomes: Sequence[Outcome]) -> None:
        """The next batch: no more than twice as long as the last, no less than one point."""
        each_s = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        wanted = _BATCH_S / max(each_s, 1e-6)
        self._size = max(min(wanted, 2 * self._size, _MOST_IN_BATCH), 1.0)

    def _lost(
        self, future: Future, batch: list[Work], waiting: deque[Work]
    ) -> Iterator[list[Outcome]]:
        if future.status == "error" and isinstance(future.exception(), KilledWorker):
            if len(batch) == 1:
                yield [Outcome(batch[0].key, failed=f"{_LOSSES} workers ended while they ran it")]
            else:
                self._suspects |= {work.key for work in batch}
                waiting.extendleft(reversed(batch))
            return
        if future.status == "error" and isinstance(future.exception(), NoWorkerError):
            raise HarnessError(
                f"no worker for {_NOBODY_S // 60} minutes: all have ended; what was finished is "
                "kept: start workers, and run the same command again"
            )
        if future.status == "error":
            future.result()  # raises what the worker raised
        raise HarnessError(
            "the scheduler was lost; what was finished is kept: run the same command again"
        )

    def _workers(self) -> int:
        """How many there are, asked at most twice a second."""
        if time.monotonic() - self._asked > 0.5:
            self._known = max(len(self.client.nthreads()), 1)
            self._asked = time.monotonic()
        return self._known


@contextlib.contextmanager
def open_pool(workers: int, scheduler: str = "") -> Iterator[Pool]:
    """Processes on this machine, on its loopback interface only, or a scheduler's workers.

    Raises HarnessError if there is no such scheduler, or no worker comes within a minute; of those
    that others start, where many begin to read one file system at the same time, within five.
    """
    with contextlib.ExitStack() as stack, dask.config.set(CONFIG):
        try:
            address: Any = scheduler or stack.enter_context(_local(workers))
            client = stack.enter_context(Client(address, timeout=30, set_as_default=False))
            client.wait_for_workers(1, timeout=_NOBODY_S if scheduler else 60)
        except (OSError, TimeoutError, RuntimeError) as error:
            where = scheduler or "this machine"
            raise HarnessError(f"no workers at {where}: {error or 'none came'}") from error
        yield Pool(client)


def _local(workers: int) -> LocalCluster:
    """Raises RuntimeError if one of them ends before it is there."""
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    )
