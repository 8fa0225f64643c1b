"""Notes its own process in a lease, then becomes the program that it is to be: see leases.py.

Run as a script of its own, with nothing imported that takes time:
launch.py LEASE RUN ENDING CGROUP PROGRAM [ARGUMENT ...], where RUN is the number of the run's
process, ENDING the signal that ends the program, and CGROUP the file through which a process enters
a control group, or empty.
"""

from __future__ import annotations

import json
import os
import sys


def _identity() -> str:
    """As processes.identity: number, start time, boot, namespace of process numbers."""
    with open("/proc/self/stat") as file:  # noqa: PTH123 - without pathlib: this must be quick
        started = file.read().rpartition(")")[2].split()[19]
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        boot = file.read().strip()
    return f"{os.getpid()} {started} {boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115


def main() -> None:
    """See the module."""
    lease, run, ending, cgroup, *command = sys.argv[1:]
    note = os.path.join(lease, f"process-{os.getpid()}")  # noqa: PTH118
    facts = {"pid": os.getpid(), "identity": _identity(), "ending": int(ending)}
    with open(f"{note}.part", "w") as file:  # noqa: PTH123
        json.dump(facts, file)
    os.rename(f"{note}.part", note)  # noqa: PTH104
    if os.getppid() != int(run):  # it was killed before it could be told
        os.remove(note)  # noqa: PTH107
        sys.exit(1)
    if cgroup:
        with open(cgroup, "w") as file:  # noqa: PTH123
            file.write("0")
    os.execvp(command[0], command)  # noqa: S606 - to become it is what this is for


if __name__ == "__main__":
    main()
