"""Points that no machine of a sweep needs any more: one that the model has refused needs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Needless:
    """The keys of such points; `machines`: number -> its points' keys, in the order they are run.

    Points before the refused one are needed still: the first that is refused says why the machine
    is, whichever of two workers was faster.
    """

    def __init__(self, machines: Mapping[int, Sequence[str]]) -> None:
        self._machines = machines
        self._places: dict[str, list[tuple[int, int]]] = {}
        for machine, keys in machines.items():
            for place, key in enumerate(keys):
                self._places.setdefault(key, []).append((machine, place))
        self._refused: dict[int, int] = {}

    def refuse(self, keys: Iterable[str]) -> set[str]:
        """The model has refused these points; returns those that are needless by it.

        One of no machine says nothing.
        """
        later: set[str] = set()
        for key in keys:
            for machine, place in self._places.get(key, ()):
                points = self._machines[machine]
                if place < self._refused.get(machine, len(points)):
                    self._refused[machine] = place
                    later.update(points[place + 1 :])
        return {key for key in later if key in self}

    def __contains__(self, key: str) -> bool:
        return all(
            place > self._refused.get(machine, place) for machine, place in self._places[key]
        )
