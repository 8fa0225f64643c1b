"""YAML of people: whatever is none is one kind of error."""

from __future__ import annotations

import pytest
import yaml

from harness.system.documents import read_yaml


def test_what_is_yaml_is_read() -> None:
    assert read_yaml("{a: [1, 2.5, x], b: 2024-02-29}").keys() == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2024-99-99",
            "!!int x",
            "!!int ''",
            "!!float x",
            "!!timestamp x",
            "!!bool x",
            "9" * 5000,
        ),
        *(
            "[" * 5000,
            "[" * 2000 + "]" * 2000,
            "{a: " * 5000,
            "{a: ",
            "*a",
            "!!python/object:x.y z",
        ),
        *("{[a]: b}", "? {a: b}", "\x00", "\udcff", "a: b: c", "!!binary \udcff", "<<: a"),
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
