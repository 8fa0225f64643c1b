"""The lab file: which drives of this machine its user has given up, and to what.

Untracked, readable by its owner only, written whole or not at all. It permits nothing by itself: a
drive is used only if it also carries the token that was written to it when it was claimed, and if
all that is noted here of it still holds. A file that is damaged in any way is refused whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import TargetError, UnknownName
from harness.paths import Project
from harness.system.files import write_atomically

BY_ID: Final = "/dev/disk/by-id/"
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")

_MOST_BYTES: Final = 1 << 20


class Claim(BaseModel):
    """A claimed drive. `token` (hex) is on it, too; all else is what the kernel said of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    by_id: Annotated[str, Field(pattern=r"^/dev/disk/by-id/[A-Za-z0-9._:+@=#-]+$")]
    model: str
    serial: Annotated[str, Field(min_length=6)]
    wwn: str
    size_bytes: Annotated[int, Field(gt=0)]
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    claimed_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """As of discovery.Drive."""
        return (self.model, self.serial, self.wwn, self.size_bytes)


class LabFile(BaseModel):
    """All claims, by the user's names for them. `digest`: SHA-256 over the claims."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal[1]
    drives: dict[str, Claim]
    digest: str

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.digest != _digest(self.drives):
            raise ValueError("its digest does not fit its contents")
        for name in self.drives:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name")
        tokens = {claim.token for claim in self.drives.values()}
        serials = {claim.identity for claim in self.drives.values()}
        if not len(tokens) == len(serials) == len(self.drives):
            raise ValueError("a drive is in it twice")
        return self


def path_of(project: Project) -> Path:
    """Where it lies in a checkout."""
    return project.root / "hardware" / "lab.json"


def load(path: Path) -> dict[str, Claim]:
    """The claims by name; none if there is no file. Raises TargetError if it is not trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}: no drive is claimed") from error
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise TargetError(f"{path} is not a file: no drive is claimed")
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            raise TargetError(f"{path} is not only yours: no drive is claimed (chmod 600, chown)")
        data = file.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError("it is too large")
        lab = LabFile.model_validate(json.loads(data, object_pairs_hook=_once))
    except (ValueError, RecursionError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise TargetError(
            f"{path} is damaged ({said}): no drive is claimed; remove the file and claim again"
        ) from error
    return lab.drives


def find(path: Path, name: str) -> Claim:
    """One claim. Raises UnknownName, TargetError."""
    claims = load(path)
    if name not in claims:
        raise UnknownName("claimed drive", name, claims)
    return claims[name]


def save(path: Path, claims: Mapping[str, Claim]) -> None:
    """Writes all claims, or raises and leaves the old file."""
    digest = _digest(claims)
    lab = LabFile(format=1, drives=dict(claims), digest=digest)
    umask = os.umask(0o077)
    try:
        write_atomically(path, (lab.model_dump_json(indent=1) + "\n").encode())
    finally:
        os.umask(umask)


def _digest(claims: Mapping[str, Claim]) -> str:
    plain = {name: claim.model_dump(mode="json") for name, claim in claims.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is in it twice")
    return found
