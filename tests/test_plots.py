"""Figures are byte-identical and say which tier they show."""

from __future__ import annotations

from pathlib import Path

from harness import plots


def draw(folder: Path) -> list[Path]:
    folder.mkdir()
    with plots.theme():
        figure, axes = plots.new()
        axes.plot([1, 2, 3], [1, 4, 9], label="line")
        axes.legend()
        plots.size_axis(axes, [1024, 2048, 4096])
        plots.stamp(figure, "simulated", ["a note that is long " * 20])
    files = plots.files(figure, folder / "figure")
    for path, data in files.items():
        path.write_bytes(data)
    return list(files)


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    first, second = draw(tmp_path / "one"), draw(tmp_path / "two")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_files_carry_no_date_and_no_version(tmp_path: Path) -> None:
    for path in draw(tmp_path / "one"):
        data = path.read_bytes()
        assert b"<dc:date>" not in data
        assert b"Matplotlib v" not in data
        assert b"Matplotlib version" not in data


def test_a_size_that_shrank_says_so() -> None:
    assert plots.size_name(4 << 20, 4 << 20) == "4 MiB"
    assert plots.size_name(128 << 10, 32 << 20) == "128 KiB (for 32 MiB)"
