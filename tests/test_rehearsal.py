"""Ways in: what an empty Debian needs, alike wherever it is said; the rehearsal of the pages."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import sys
from types import ModuleType

import pytest
from command_lines import is_destructive
from conftest import REPOSITORY


@pytest.fixture(scope="module")
def rehearse() -> ModuleType:
    path = str(REPOSITORY / "tools" / "rehearse")
    loader = importlib.machinery.SourceFileLoader("rehearse", path)
    spec = importlib.util.spec_from_loader("rehearse", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rehearse"] = module
    loader.exec_module(module)
    return module


def test_the_pages_name_the_packages_of_the_images(rehearse: ModuleType) -> None:
    said = re.search(r"apt-get install ([^`]+)`", (REPOSITORY / "docs" / "artifact.md").read_text())
    assert said is not None
    assert set(said.group(1).split()) == set(rehearse.packages()) - {"ca-certificates"}


@pytest.mark.parametrize(
    "file",
    ["tools/containers/Containerfile", "tools/containers/apptainer.def", ".binder/Dockerfile"],
)
def test_every_image_is_made_from_that_list(file: str) -> None:
    text = (REPOSITORY / file).read_text()
    assert "tools/containers/packages.txt" in text
    assert len(re.findall(r"apt-get install", text)) == 1
    assert "debian:12" in text


def test_the_dev_container_is_the_image() -> None:
    made = json.loads((REPOSITORY / ".devcontainer" / "devcontainer.json").read_text())
    file = (REPOSITORY / ".devcontainer" / made["build"]["dockerfile"]).resolve()
    assert file == REPOSITORY / "tools" / "containers" / "Containerfile"
    assert f"--create-home {made['remoteUser']}" in file.read_text()


def test_nothing_is_rehearsed_that_may_overwrite_a_drive(rehearse: ModuleType) -> None:
    found = list(rehearse.commands(whole=True))
    typed = [command.line for command in found if not command.why]
    assert {"make quick", "make reproduce", "make test"} <= set(typed)
    assert len(typed) > 15
    assert not [line for line in typed if re.search(r"claim /|prepare|release|--drive|RUN=", line)]
    assert not [line for line in typed if "sudo" in line]
    assert not [line for line in typed if is_destructive(line)], "as the other pages' test says"


def test_what_is_left_out_says_why(rehearse: ModuleType) -> None:
    whys = {command.line: command.why for command in rehearse.commands()}
    assert whys["make quick"] == ""
    assert whys["make reproduce"] == "takes long (--whole)"
    assert whys["sudo make emulated"] == "needs a kernel of its own"
