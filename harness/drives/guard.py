"""The erase guard: a drive is overwritten only if its user has claimed it, and still is that drive.

Fail closed. `claim` looks at a drive, asks for the last characters of its serial number, writes a
header with a token to it and notes it in the lab file. `claimed` finds the drive again by its
persistent name, compares all that was noted, holds it exclusively, and gives experiments the part
behind the header. Whatever is not as it was, or cannot be looked at, is a refusal: nothing is
written then.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.drives import device_locks, lab_file
from harness.drives.discovery import EDGE_BYTES, Drive, Machine
from harness.drives.lab_file import Claim
from harness.drives.targets import Step
from harness.errors import HarnessError, TargetError, UnknownName
from harness.paths import Project, find_project
from harness.system import kernel_partitions, leases, mounts
from harness.system.kernel_partitions import HEADER_BYTES, MARKER, SECTOR_BYTES
from harness.units import format_bytes

TYPED_CHARACTERS: Final = 6
"""So many of the serial number's last ones have to be typed."""

BUDGET_DRIVE_WRITES: Final = 2
"""How often a run may write the whole drive, unless it is told otherwise."""

_LEAST_BYTES: Final = 64 << 20
_PAGE_BYTES: Final = 4096
_PARTITION_NAME: Final = re.compile(r"-part\d+$")


class BudgetSpent(TargetError):
    """A run has written, or is about to write, more than it was given."""


@dataclass(frozen=True)
class ClaimPlan:
    """What claiming a drive would do: `drive` as found, and the steps.

    `found`: the token of the claim that the drive carries already; empty: it is blank. `is_known`:
    that claim is in the lab file.
    """

    name: str
    by_id: Path
    drive: Drive
    steps: tuple[Step, ...]
    found: str = ""
    is_known: bool = False

    @property
    def token(self) -> str:
        """Stands for the typed characters in batch use; bound to the drive and to this plan."""
        drive = [self.drive.identity, self.found, self.is_known]
        bound = [self.name, str(self.by_id), *drive, [step.command for step in self.steps]]
        return hashlib.sha256(json.dumps(bound).encode()).hexdigest()[:16]

    @property
    def warning(self) -> str:
        """What else whoever confirms it has to know; empty if there is nothing."""
        if not self.found or self.is_known:
            return ""
        return (
            f"{self.drive.node} carries the claim of another checkout or machine: whoever made it "
            "loses it"
        )


def plan_claim(
    name: str, by_id: Path, machine: Machine | None = None, *, project: Project | None = None
) -> ClaimPlan:
    """Looks at a drive that is to be claimed under a name. Raises TargetError; writes nothing."""
    if not lab_file.NAME.fullmatch(name):
        raise TargetError(f"{name!r} is no name for a drive: use a-z, 0-9 and _, at most 32")
    machine = machine or Machine()
    drive = _drive_at(by_id, machine)
    _check_facts(drive, machine)
    _check_free(drive, machine)
    with _held(drive) as fd:
        found, is_known = _claim_on(fd, drive, project)
    header = Step("write the header that marks the drive", _header_command(drive), HEADER_BYTES, 0)
    return ClaimPlan(name, by_id, drive, (header,), found, is_known)


def claim(plan: ClaimPlan, answer: str, project: Project | None = None) -> Claim:
    """Claims the drive, if `answer` is its serial number's last characters or the plan's token.

    Looks at all again first. Writes the header, then the lab file. Raises TargetError.
    """
    wanted = plan.drive.serial[-TYPED_CHARACTERS:]
    if answer not in (wanted, plan.token):
        raise TargetError(
            f"that is neither the last {TYPED_CHARACTERS} characters of {plan.drive.node}'s serial "
            "number nor the token of this plan: nothing was changed"
        )
    machine = Machine()
    again = plan_claim(plan.name, plan.by_id, machine, project=project)
    if again != plan:
        raise TargetError(f"{plan.by_id} is not what it was when the plan was made: plan again")
    drive = again.drive
    path = _lab_file(project)
    claims = {n: c for n, c in lab_file.load(path).items() if c.identity != drive.identity}
    if plan.name in claims:
        raise TargetError(
            f"another drive is claimed as {plan.name!r}: release it (with --forget, if it has "
            "gone), or take another name"
        )
    made = Claim(
        by_id=str(plan.by_id),
        model=drive.model,
        serial=drive.serial,
        wwn=drive.wwn,
        size_bytes=drive.size_bytes,
        token=secrets.token_hex(16),
        claimed_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with _held(drive) as fd:
        if _claim_on(fd, drive, project) != (plan.found, plan.is_known):
            raise TargetError(f"{drive.node} was claimed by somebody a moment ago: plan again")
        _write_header(fd, made)
    lab_file.save(path, {**claims, plan.name: made})
    return made


def release(name: str, project: Project | None = None) -> Claim:
    """Overwrites the header with zeroes and forgets the claim. Raises TargetError, UnknownName."""
    with claimed(name, project=project) as drive:
        drive.give_up()
    return forget(name, project)


def forget(name: str, project: Project | None = None) -> Claim:
    """Forgets the claim of a drive that has gone, died or become another, and writes nothing to any
    drive; a header that is there stays, and whoever claims that drive again is told of it.

    Raises UnknownName.
    """
    path = _lab_file(project)
    claims = lab_file.load(path)
    if name not in claims:
        raise UnknownName("claimed drive", name, claims)
    gone = claims.pop(name)
    lab_file.save(path, claims)
    return gone


def check(name: str, project: Project | None = None) -> Drive:
    """A claimed drive, found again, if it still is the one; takes and writes nothing.

    Raises UnknownName, TargetError.
    """
    return find(name, project)[1]


def find(name: str, project: Project | None = None) -> tuple[Claim, Drive]:
    """What `check` returns, and the claim that it was found by: another one after each `claim`."""
    claim = lab_file.find(_lab_file(project), name)
    return claim, _found_again(claim)


def _lab_file(project: Project | None) -> Path:
    return lab_file.path_of(project or find_project())


def room_bytes(drive: Drive) -> int:
    """What experiments may write to of a drive."""
    return kernel_partitions.layout(drive.size_bytes)[1].length_bytes


def allowed_bytes(drive: Drive, asked_bytes: int) -> int:
    """What a run may write to a drive: what was asked for, or a multiple of its size."""
    return asked_bytes or BUDGET_DRIVE_WRITES * drive.size_bytes


def part_of(drive: Drive) -> Path:
    """The node of the part that experiments write to, while the drive is held."""
    return _node_of(drive, kernel_partitions.DATA)


@dataclass(frozen=True)
class Part:
    """The part of a claimed drive that experiments write to, while nobody holds it: for plans."""

    drive: Drive

    @property
    def path(self) -> Path:
        """See targets.Target."""
        return part_of(self.drive)

    @property
    def size_bytes(self) -> int:
        """See targets.Target."""
        return room_bytes(self.drive)

    def permit(self, step: str, written_bytes: int) -> None:
        """Nothing is permitted on a drive that is not held. Raises TargetError, always."""
        del written_bytes
        raise TargetError(f"{self.drive.node} is not held: {step} is refused")


@contextlib.contextmanager
def claimed(
    name: str, *, budget_bytes: int = 0, project: Project | None = None
) -> Iterator[ClaimedDrive]:
    """A claimed drive, found again and held for as long as the block runs.

    `budget_bytes`: what may be written to it; 0: BUDGET_DRIVE_WRITES times its size. Raises
    UnknownName, TargetError; nothing is written then.
    """
    path = _lab_file(project)
    claim = lab_file.find(path, name)
    drive = _found_again(claim)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(drive))
        _remove_leftovers(drive, claim)
        machine = Machine()
        _check_facts(drive, machine)
        _check_free(drive, machine)
        lease = stack.enter_context(leases.open_lease())
        budget = allowed_bytes(drive, budget_bytes)
        held = ClaimedDrive(name, claim, drive, budget, lease, path)
        stack.callback(held.close)
        held.take()
        yield held


class ClaimedDrive:
    """A drive that may be overwritten behind its header: a `Target`."""

    def __init__(
        self,
        name: str,
        claim: Claim,
        drive: Drive,
        budget_bytes: int,
        lease: leases.Lease,
        lab: Path,
    ) -> None:
        self.name = name
        self.claim = claim
        self.drive = drive
        self.budget_bytes = budget_bytes
        self._lease = lease
        self._lab_file = lab
        self._sysfs = Path("/sys/dev/block") / drive.number
        self._check_counted()
        self._begin_bytes = self._all_written_bytes()
        self._header = -1

    @property
    def path(self) -> Path:
        """The part behind the header, a partition that only the kernel knows."""
        return part_of(self.drive)

    @property
    def size_bytes(self) -> int:
        """Of that part."""
        return room_bytes(self.drive)

    @property
    def written_bytes(self) -> int:
        """What the kernel has written to the whole drive since it was taken."""
        return self._all_written_bytes() - self._begin_bytes

    def permit(self, step: str, written_bytes: int) -> None:
        """See targets.Target. Raises TargetError, BudgetSpent.

        To be asked while nothing of ours is mounted on its part: that is taken for somebody's.
        """
        self._check(self._header, step)
        self._check_part()
        self._check_counted()
        if self.written_bytes + written_bytes > self.budget_bytes:
            raise BudgetSpent(
                f"{self.name}: {step} would write {format_bytes(written_bytes)}, "
                f"{format_bytes(self.written_bytes)} of {format_bytes(self.budget_bytes)} are "
                "written: give it a larger --write-budget"
            )

    @property
    def is_overspent(self) -> bool:
        """Whether more has been written than was given, as far as the kernel counts; if it does not
        any more nobody knows.
        """
        return self.written_bytes > self.budget_bytes or not self._is_counted()

    def check_budget(self) -> None:
        """Raises BudgetSpent if more has been written than was given, TargetError if the kernel
        counts no more.
        """
        self._check_counted()
        if self.is_overspent:
            raise BudgetSpent(
                f"{self.name}: {format_bytes(self.written_bytes)} are written, "
                f"{format_bytes(self.budget_bytes)} were allowed: the run was stopped"
            )

    @contextlib.contextmanager
    def whole(self, steps: Sequence[Step]) -> Iterator[Callable[[Step], None]]:
        """For steps that reach the whole drive, its header too, which is written again afterwards.

        Yields what is to be called before each step: it still is the drive, whose token the step
        before may have erased. Raises TargetError (also if a step was made for another node, or
        would reach a drive that is not claimed, or if the header cannot be written again),
        BudgetSpent. Where the block ends with an error, that says so, too; one that is not the
        harness's own, such as a KeyboardInterrupt, in a note.
        """

        def before(step: Step) -> None:
            step.check_names(self.drive.node)
            self._check_identity(step.what)

        for step in steps:
            step.check_names(self.drive.node)
        self._check_neighbours(steps)
        self.permit("prepare the drive", sum(step.written_bytes for step in steps))
        with self._whole() as fd:
            try:
                yield before
            except HarnessError as error:
                if lost := self._mark_again(fd):
                    error.args = (f"{error}; and {lost}",)
                raise
            except BaseException as error:
                if lost := self._mark_again(fd):
                    error.add_note(lost)
                raise
            if lost := self._mark_again(fd):
                raise TargetError(f"{self.name}: {lost}")
        self.take()

    def give_up(self) -> None:
        """Overwrites the header: it is no claimed drive any more."""
        self.permit("remove the header", HEADER_BYTES)
        with self._whole() as fd:
            _write_whole_header(fd, b"")

    def take(self) -> None:
        """Holds the header's partition, and makes the other one. Raises TargetError."""
        with _held(self.drive) as fd:
            self._check(fd, "take the drive")
            self._lease.note_partitions(self.drive.number)
            for extent in kernel_partitions.layout(self.claim.size_bytes):
                kernel_partitions.add(fd, extent)
        self._check_part()
        node = _node_of(self.drive, kernel_partitions.HEADER)
        self._header = _open(node, os.O_RDWR | os.O_EXCL | os.O_DIRECT)
        self._check(self._header, "hold the drive")

    def close(self) -> None:
        """Gives it back to the system, as it was: no partitions."""
        if self._header >= 0:
            os.close(self._header)
            self._header = -1
        try:
            kernel_partitions.remove_ours(self.drive.number)
        except OSError as error:
            raise _unreadable(self.drive.node, error) from error

    @contextlib.contextmanager
    def _whole(self) -> Iterator[int]:
        self.close()
        with _held(self.drive) as fd:
            self._check(fd, "take the whole drive")
            yield fd

    def _mark_again(self, fd: int) -> str:
        """Writes the claim's header; why that was not possible, and what to do then, if so."""
        try:
            _write_header(fd, self.claim)
        except (OSError, TargetError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            return f"the claim's header could not be written again ({said}): claim it again"
        return ""

    def _check_neighbours(self, steps: Sequence[Step]) -> None:
        """What an NVMe controller is told may reach all of its namespaces (Identify, FNA)."""
        if not any(Path(step.command[0]).name == "nvme" for step in steps):
            return
        machine = Machine()
        claims = lab_file.load(self._lab_file).values()
        for other in machine.drives:
            if other.name == self.drive.name or other.controller != self.drive.controller:
                continue
            if not any(claim.identity == other.identity for claim in claims):
                raise TargetError(
                    f"{self.name} shares its controller with {other.name}, which is not claimed "
                    "and might be erased, too: claim it, or use a full discard instead"
                )

    def _check_identity(self, step: str) -> None:
        """It still is the drive: by its persistent name, and by what the kernel says of it. And its
        part is nobody's.
        """
        machine = Machine()
        try:
            again = _drive_at(Path(self.claim.by_id), machine)
        except TargetError as error:
            raise TargetError(f"{self.name}, before '{step}': {error}") from error
        now, then = (again.number, again.sequence), (self.drive.number, self.drive.sequence)
        if again.identity != self.claim.identity or now != then:
            raise TargetError(
                f"{self.name}: {self.claim.by_id} is another drive than the claimed one: refused "
                f"before '{step}'"
            )
        self._check_unused(machine, step)

    def _check_unused(self, machine: Machine, step: str) -> None:
        """The header alone is held: the part, on which file systems are mounted, others can take.

        Nothing is read of it, since that would be measured.
        """
        part = self.path
        used = [f"held by {holder}" for holder in machine.holders(part.name)]
        used += machine.uses(part.name)
        if not used and mounts.is_claimed(part) and os.getpid() not in mounts.users(part):
            used.append("as the kernel says, which does not say by whom")
        if used:
            raise TargetError(
                f"{self.name}: somebody uses {part} ({', '.join(used)}): refused before '{step}'; "
                "end that (umount, swapoff, vgchange -an, mdadm --stop), if nothing on it is needed"
            )

    def _check_part(self) -> None:
        """Its node is the kernel's: a file in its place would take all that is written."""
        node = self.path
        known = self._sysfs / node.name / "dev"
        try:
            facts, wanted = node.lstat(), known.read_text().strip()
        except OSError as error:
            raise TargetError(
                f"{self.name}: {node} has gone, by partprobe perhaps ({error.strerror}): what "
                "would be written there now would be a file"
            ) from error
        number = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
        if not stat.S_ISBLK(facts.st_mode) or number != wanted:
            raise TargetError(f"{node} is not the device that the kernel calls so: remove it")

    def _check(self, fd: int, step: str) -> None:
        """And by the token on it."""
        self._check_identity(step)
        if _token_on(fd) != self.claim.token:
            raise TargetError(
                f"{self.name}: {self.drive.node} does not carry the token of its claim: refused "
                f"before '{step}'; claim it again"
            )

    def _check_counted(self) -> None:
        """By what the kernel counts a budget is kept, and it is known who else writes to it."""
        if not self._is_counted():
            raise TargetError(
                f"{self.name}: the kernel does not count what is written to {self.drive.node}: "
                f"echo 1 > {self._counting.resolve()}"
            )

    def _is_counted(self) -> bool:
        return not self._counting.exists() or self._counting.read_text().strip() != "0"

    @property
    def _counting(self) -> Path:
        return self._sysfs / "queue" / "iostats"

    def _all_written_bytes(self) -> int:
        """Documentation/ABI/testing/procfs-diskstats: the seventh field is sectors written."""
        return int((self._sysfs / "stat").read_text().split()[6]) * SECTOR_BYTES


def _node_of(drive: Drive, number: int) -> Path:
    """As the kernel names partitions: with a p behind a digit."""
    between = "p" if drive.name[-1].isdigit() else ""
    return drive.node.with_name(f"{drive.name}{between}{number}")


def _drive_at(by_id: Path, machine: Machine) -> Drive:
    """The drive that a persistent name stands for."""
    text = str(by_id)
    if not text.startswith(lab_file.BY_ID) or by_id.name != text.removeprefix(lab_file.BY_ID):
        raise TargetError(
            f"{text}: name the drive by its path in {lab_file.BY_ID} (see `harness hardware "
            "list`): names such as /dev/sda or /dev/nvme0n1 may be another drive after a restart"
        )
    if _PARTITION_NAME.search(by_id.name):
        raise TargetError(f"{text} is a partition: claim a whole drive")
    if not by_id.is_symlink():
        raise TargetError(f"{text}: there is no such drive: see `harness hardware list`")
    if len(machine.claimants(by_id)) > 1:
        raise TargetError(
            f"{text} may lead to several drives: use another of the drive's names (see `harness "
            "hardware list`)"
        )
    node = by_id.resolve()
    if not node.is_block_device():
        raise TargetError(f"{text} does not lead to a block device")
    facts = node.stat()
    number = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
    name = machine.name_of(number)
    if node != Path("/dev") / name:
        raise TargetError(f"{text} leads to {node}, which the kernel calls {name}: refused")
    folder = Path("/sys/dev/block") / number
    if (folder / "partition").exists():
        raise TargetError(f"{text} leads to a partition: claim a whole drive")
    return machine.drive(name)


def _found_again(claim: Claim) -> Drive:
    drive = _drive_at(Path(claim.by_id), Machine())
    for what, noted, now in zip(
        ("model", "serial number", "WWN", "size"), claim.identity, drive.identity, strict=True
    ):
        if noted != now:
            raise TargetError(
                f"{claim.by_id} has another {what} than when it was claimed ({now}, not {noted}): "
                "refused"
            )
    return drive


def check_claimable(drive: Drive, machine: Machine) -> None:
    """Raises TargetError, with the reason, for a drive that could not be claimed as it is."""
    _check_facts(drive, machine)
    _check_free(drive, machine)


def _check_facts(drive: Drive, machine: Machine) -> None:
    """What makes a drive impossible to claim, whatever is on it."""
    if len(drive.serial) < TYPED_CHARACTERS:
        raise TargetError(
            f"{drive.node} tells no serial number of at least {TYPED_CHARACTERS} characters: it "
            "could not be told from another"
        )
    if drive.size_bytes < _LEAST_BYTES:
        raise TargetError(f"{drive.node} holds {format_bytes(drive.size_bytes)}: too small")
    if drive.read_only:
        raise TargetError(f"{drive.node} is read-only: blockdev --setrw, if that is right")
    if drive.name in machine.system_drives():
        raise TargetError(
            f"{drive.node} is a drive that this system runs from, or shares its controller or its "
            "identity with one: it can never be claimed"
        )
    alike = [other.name for other in machine.drives if other.serial == drive.serial]
    shared = [other for other in alike if machine.drive(other).wwn == drive.wwn]
    if len(shared) > 1:
        raise TargetError(
            f"{' and '.join(shared)} have the same serial number and WWN: one cannot be told from "
            "the other (two paths to one drive, or a bridge that makes its numbers up)"
        )


def _check_free(drive: Drive, machine: Machine) -> None:
    if occupants := machine.occupants(drive.name):
        raise TargetError(
            f"{drive.node} is in use or carries data ({'; '.join(occupants)}): if nothing on it is "
            "needed, unmount and clear it yourself (wipefs -a), then try again"
        )


@contextlib.contextmanager
def _held(drive: Drive) -> Iterator[int]:
    """The drive, held exclusively: the kernel refuses it to all others, and to us if it is held."""
    node = drive.node
    fd = _open(node, os.O_RDWR | os.O_EXCL | os.O_DIRECT)
    try:
        facts = os.fstat(fd)
        number = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
        if not stat.S_ISBLK(facts.st_mode) or number != drive.number:
            raise TargetError(f"{node} is another device than a moment ago: refused")
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(drive: Drive) -> Iterator[None]:
    """Left alone by udev and other runs: see device_locks."""
    fd = _open(drive.node, os.O_RDONLY)
    try:
        device_locks.take(fd, drive.node, device_locks.UDEV_PATIENCE_S)
        yield
    finally:
        os.close(fd)


def _open(node: Path, flags: int) -> int:
    try:
        return os.open(node, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise TargetError(
                f"{node} is held by somebody else (mounted, RAID, ZFS, another run): refused"
            ) from error
        raise TargetError(f"{node}: {error.strerror}: be root, or choose another drive") from error


def _claim_on(fd: int, drive: Drive, project: Project | None) -> tuple[str, bool]:
    """The token of the claim that a drive carries (empty: it is blank), and whether the lab file
    has that claim. Raises TargetError for a drive that may carry data, too.
    """
    _check_blank_or_ours(fd, drive)
    found = _token_on(fd)
    if found is None:
        return "", False
    is_known = any(claim.token == found for claim in lab_file.load(_lab_file(project)).values())
    if not is_known:  # nobody here knows what became of it since
        _check_blank(fd, drive, "end")
    return found, is_known


def _check_blank_or_ours(fd: int, drive: Drive) -> None:
    if _token_on(fd) is not None:
        return
    for place in ("begin", "end"):
        _check_blank(fd, drive, place)


def _check_blank(fd: int, drive: Drive, place: str) -> None:
    begin = 0 if place == "begin" else drive.size_bytes - EDGE_BYTES
    if any(_read_direct(fd, begin, EDGE_BYTES)):
        raise TargetError(
            f"{drive.node} is not blank at its {place} (1 MiB): if nothing on it is needed, "
            "clear it yourself (wipefs -a, then blkdiscard -z), then try again"
        )


def _remove_leftovers(drive: Drive, claim: Claim) -> None:
    """The partitions of a run that was killed."""
    fd = _open(drive.node, os.O_RDONLY)
    try:
        ours = _token_on_cached(fd) == claim.token
    finally:
        os.close(fd)
    if ours:
        kernel_partitions.remove_ours(drive.number)


def _write_header(fd: int, claim: Claim) -> None:
    _write_whole_header(
        fd, MARKER + json.dumps({"format": 1, "token": claim.token}).encode() + b"\n"
    )


def _write_whole_header(fd: int, text: bytes) -> None:
    with mmap.mmap(-1, HEADER_BYTES) as buffer:  # aligned, as O_DIRECT wants it
        buffer[: len(text)] = text
        written = os.pwrite(fd, buffer, 0)
    if written != HEADER_BYTES:
        raise TargetError("the header could not be written whole: the drive is not claimed")
    os.fsync(fd)


def _token_on(fd: int) -> str | None:
    """The token that the drive itself holds at this moment; None if there is none."""
    return _token_in(_read_direct(fd, 0, _PAGE_BYTES))


def _token_on_cached(fd: int) -> str | None:
    try:
        return _token_in(os.pread(fd, _PAGE_BYTES, 0))
    except OSError as error:
        raise _unreadable(_opened_as(fd), error) from error


def _token_in(page: bytes) -> str | None:
    if not page.startswith(MARKER):
        return None
    try:
        said = json.loads(page[len(MARKER) :].partition(b"\n")[0])
        token = said["token"] if said.get("format") == 1 else None
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None
    return token if isinstance(token, str) else None


def _read_direct(fd: int, begin_bytes: int, length_bytes: int) -> bytes:
    """Exactly these bytes, past the page cache, which wants whole pages. Raises TargetError."""
    before = begin_bytes % _PAGE_BYTES
    with mmap.mmap(-1, length_bytes + _PAGE_BYTES) as buffer:
        try:
            got = os.preadv(fd, [buffer], begin_bytes - before)
        except OSError as error:
            raise _unreadable(_opened_as(fd), error) from error
        if got < before + length_bytes:
            raise TargetError(f"{length_bytes} bytes at {begin_bytes} could not be read: refused")
        return buffer[before : before + length_bytes]


def _opened_as(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def _unreadable(node: Path, error: OSError) -> TargetError:
    """A drive that is locked, or that erases itself, refuses to be read, and says no more."""
    return TargetError(
        f"{node} cannot be read ({error.strerror}): refused; a password on it (see hdparm -I) or a "
        "sanitize that runs or has failed (see nvme sanitize-log) may be why"
    )


def _header_command(drive: Drive) -> tuple[str, ...]:
    return ("write", str(drive.node), "0", str(HEADER_BYTES))
