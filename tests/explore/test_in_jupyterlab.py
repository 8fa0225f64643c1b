"""The notebook with the sliders, in JupyterLab, in a browser: moved, and another picture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import REPOSITORY, need
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

NOTEBOOK = "95_explore.ipynb"
TOKEN = "explore"
WIDTHS = (390, 1400)
TALL = 9000
"""JupyterLab makes only those cells that are in view."""

PICTURE = ".jp-OutputArea-output img"
SLIDER = ".jp-OutputArea-output .widget-hslider"
WAIT_S = 120


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab over a copy of what the notebook needs, and the copy of it."""
    root = tmp_path_factory.mktemp("lab")
    for name in ("hardware/profiles", "data/published"):
        shutil.copytree(REPOSITORY / name, root / name)
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "notebooks").mkdir()
    notebook = Path(shutil.copy(REPOSITORY / "notebooks" / NOTEBOOK, root / "notebooks"))
    own = {f"JUPYTER_{kind}_DIR": str(root / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    command += ["--ip=127.0.0.1", "--expose-app-in-browser", f"--IdentityProvider.token={TOKEN}"]
    with subprocess.Popen(
        [*command, f"--notebook-dir={notebook.parent}"],
        cwd=root,
        env={**os.environ, **own, "HOME": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            said = (re.search(r"http://127\.0\.0\.1:\d+/lab", line) for line in server.stderr)
            yield next(found[0] for found in said if found), notebook
        finally:
            server.terminate()
            server.communicate(timeout=30)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = need("chromium")
    for option in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.add_argument(f"--user-data-dir={tmp_path / 'browser'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(need("chromedriver"))
    driver = webdriver.Chrome(options, service)
    try:
        yield driver
    finally:
        driver.quit()


def opened(browser: webdriver.Chrome, address: str, width: int) -> None:
    browser.set_window_size(width, TALL)
    browser.get(f"{address}/tree/{NOTEBOOK}?token={TOKEN}&reset")
    # A command that comes before the kernel does would wait for ever.
    ready = """const shown = window.jupyterapp?.shell.currentWidget;
    return shown?.sessionContext?.session?.kernel?.status === 'idle'"""
    WebDriverWait(browser, WAIT_S).until(lambda b: b.execute_script(ready))


def command(browser: webdriver.Chrome, name: str) -> None:
    """One of JupyterLab's, to its end."""
    browser.set_script_timeout(WAIT_S)
    browser.execute_async_script(
        "window.jupyterapp.commands.execute(arguments[0]).then(arguments[1], arguments[1])", name
    )


def run_all(browser: webdriver.Chrome, panels: int) -> None:
    command(browser, "notebook:run-all-cells")
    WebDriverWait(browser, WAIT_S).until(
        lambda b: len(pictures(b)) == panels and len(b.find_elements(By.CSS_SELECTOR, SLIDER))
    )


def pictures(browser: webdriver.Chrome) -> list[str]:
    """What the pictures are: their data. Asked at once, since an update makes a new element."""
    script = "return [...document.querySelectorAll(arguments[0])].map((image) => image.src)"
    found: list[str] = browser.execute_script(script, PICTURE)
    return found


def changed(before: list[str], after: list[str]) -> int:
    """How many are others now; none while one is being replaced."""
    return (
        sum(a != b for a, b in zip(before, after, strict=True)) if len(before) == len(after) else 0
    )


def wait_for_another(browser: webdriver.Chrome, shown: list[str]) -> None:
    WebDriverWait(browser, WAIT_S).until(lambda b: changed(shown, pictures(b)))


def errors(browser: webdriver.Chrome) -> list[str]:
    said: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [each["message"] for each in said if each["level"] == "SEVERE"]


def step(slider: WebElement) -> None:
    """To the next choice; back from the last one."""
    handle = slider.find_element(By.CSS_SELECTOR, ".noUi-handle")
    at, last = (float(str(handle.get_attribute(f"aria-value{name}"))) for name in ("now", "max"))
    handle.send_keys(Keys.ARROW_LEFT if at == last else Keys.ARROW_RIGHT)


@pytest.mark.slow
@pytest.mark.builds
def test_sliders_moved_give_other_pictures(
    browser: webdriver.Chrome, lab: tuple[str, Path]
) -> None:
    address, notebook = lab
    panels = notebook.read_text().count("panel.show(")
    opened(browser, address, 1400)
    run_all(browser, panels)
    before = pictures(browser)
    assert len(set(before)) == panels
    sliders = browser.find_elements(By.CSS_SELECTOR, SLIDER)
    assert len(sliders) >= panels
    for slider in sliders:
        shown = pictures(browser)
        step(slider)
        wait_for_another(browser, shown)
        assert changed(shown, pictures(browser)) == 1, "a slider changes its own picture"
    after = pictures(browser)
    assert all(a != b for a, b in zip(before, after, strict=True))
    command(browser, "docmanager:save")
    assert not errors(browser)
    saved = nbformat.read(notebook, as_version=4)
    kept = [out.data.get("image/png", "") for c in saved.cells for out in c.get("outputs", [])]
    assert [png.strip() for png in kept if png] == [src.split(",")[1].strip() for src in after]


@pytest.mark.slow
@pytest.mark.builds
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_no_wider_than_the_screen(
    browser: webdriver.Chrome, lab: tuple[str, Path], width: int
) -> None:
    address, notebook = lab
    opened(browser, address, width)
    command(browser, "application:toggle-left-area")
    run_all(browser, notebook.read_text().count("panel.show("))
    script = """const area = document.querySelector('.jp-WindowedPanel-outer, .jp-Notebook');
    return [...document.querySelectorAll('.jp-OutputArea-output, .widget-vbox, .widget-hslider')]
      .filter((e) => e.getBoundingClientRect().right > area.getBoundingClientRect().right + 1)
      .length"""
    assert browser.execute_script(script) == 0
