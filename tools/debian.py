"""Debian's packages, unpacked into a folder: by apt itself, from the mirror that this machine uses.

Nothing is installed and no root is needed; apt's lists and files lie below the folder, too.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path("/etc/apt")


class NotToBeHad(Exception):
    """apt cannot get something here; with its words."""


def codename() -> str:
    """The code name of the Debian that this is; nothing if it is none, or older than 12."""
    said = Path("/etc/os-release")
    facts = (
        dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', said.read_text(), re.M)) if said.is_file() else {}
    )
    fits = facts.get("ID") == "debian" and int(facts.get("VERSION_ID", "99").split(".")[0]) >= 12
    right = fits and platform.machine() == "x86_64" and shutil.which("apt-get")
    return facts.get("VERSION_CODENAME", "") if right else ""


class Apt:
    """apt with the machine's own mirror, and everything else of it below a folder.

    suites: where packages come from, what is preferred last. beside: whether what this machine has
    installed counts as there; without it, all that a package needs is unpacked with it. All raise
    NotToBeHad.
    """

    def __init__(self, home: Path, suites: Iterable[str], *, beside: bool = True) -> None:
        """Fetches the lists of packages."""
        names = list(dict.fromkeys(suites))
        self.suite = names[-1]
        self.folder = home / "apt"
        self.status = [] if beside else ["-o", f"Dir::State::status={self.folder / 'status'}"]
        for name in ("lists/partial", "archives/partial", "sources", "debs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources" / "own.sources").write_text(mirror(names))
        self("apt-get", "update", "-qq", "--error-on=any")

    def __call__(self, program: str, *arguments: str) -> str:
        """What an apt program printed; it ends us if it fails, with its words."""
        places = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": self.folder / "sources",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache::archives": self.folder / "archives",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "APT::Sandbox::User": "root",  # its own user could not write here
            "Debug::NoLocking": "true",
        }
        options = [word for key, value in places.items() for word in ("-o", f"{key}={value}")]
        done = subprocess.run(
            [program, *options, *self.status, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder / "debs",
            env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode:
            raise NotToBeHad(f"{program} {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def newest(self, pattern: str) -> str:
        """Of the packages whose name matches (POSIX, extended), that with the greatest number.

        Raises NotToBeHad if there are none.
        """
        said = self("apt-cache", "search", "--names-only", f"^{pattern}$")
        found = re.findall(rf"^({pattern}) - ", said, re.M)
        if not found:
            raise NotToBeHad(f"{self.suite} has no {pattern}")
        return str(max(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)]))

    def closure(self, *packages: str) -> dict[str, str]:
        """Packages and all that they need and is not there: name to version."""
        said = self(
            *("apt-get", "install", "--simulate", "--no-install-recommends"),
            *("--target-release", self.suite, *packages),
        )
        return dict(re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", said, re.M))

    def unpack(self, packages: Iterable[str], target: Path) -> None:
        """Fetches packages (NAME or NAME=VERSION) and unpacks them into a new folder, as if /usr
        were all there is.
        """
        debs = self.folder / "debs"
        shutil.rmtree(debs)
        debs.mkdir()
        if wanted := sorted(packages):
            self("apt-get", "download", "-qq", *wanted)
        for name in ("bin", "sbin", "lib", "lib64"):
            (target / "usr" / name).mkdir(parents=True)
            (target / name).symlink_to(f"usr/{name}")
        for deb in sorted(debs.iterdir()):
            packing = ["dpkg-deb", "--fsys-tarfile", str(deb)]
            packed = subprocess.run(packing, stdout=subprocess.PIPE, check=True)
            # Of links that lead from /lib to /usr/lib, tar would otherwise make folders.
            unpacking = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner"]
            subprocess.run([*unpacking, "-C", str(target)], input=packed.stdout, check=True)
        shutil.rmtree(debs)
        debs.mkdir()


def mirror(suites: list[str]) -> str:
    """The machine's own Debian mirror as a deb822 stanza, with these suites. Raises NotToBeHad."""
    name = codename()
    for fields in (*stanzas(), *lines()):
        if name in fields.get("Suites", "").split() and fields.get("Types", "").startswith("deb"):
            kept = ("URIs", "Components", "Signed-By")
            stanza = {key: text for key, text in fields.items() if key in kept}
            stanza |= {"Types": "deb", "Suites": " ".join(suites)}
            return "".join(f"{key}: {value}\n" for key, value in stanza.items())
    raise NotToBeHad(f"apt's sources name no mirror of {name}")


def stanzas() -> list[dict[str, str]]:
    """Apt's sources in the format of deb822; a key written within them is not taken."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("sources.list.d/*.sources"))]
    field = re.compile(r"^([\w-]+):[ \t]*(\S.*)$", re.M)
    return [dict(field.findall(part)) for text in texts for part in re.split(r"\n\s*\n", text)]


def lines() -> list[dict[str, str]]:
    """Apt's sources in the format of one line each."""
    paths = [SOURCES / "sources.list", *sorted(SOURCES.glob("sources.list.d/*.list"))]
    text = "\n".join(path.read_text() for path in paths if path.is_file())
    found = re.findall(r"^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$", text, re.M)
    keys = ("Types", "URIs", "Suites", "Components")
    signed = re.compile(r"signed-by=(\S+)")
    return [
        dict(zip(keys, ("deb", *fields), strict=True))
        | ({"Signed-By": key[1]} if (key := signed.search(options)) else {})
        for options, *fields in found
    ]
