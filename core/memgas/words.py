"""Units whose words were shown lately: a chat asks about one matter several times, and the disk need not be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from memgas.types import MemoryUnit


class RecentWords:
    """Units by id, the ones asked for last, within a number of characters. Not locked: its owner is.

    Parameters
    ----------
    max_chars
        Most characters of text held.
    """

    def __init__(self, *, max_chars: int) -> None:
        self._max_chars = max_chars
        self._units: OrderedDict[str, MemoryUnit] = OrderedDict()
        self.n_chars = 0

    def __len__(self) -> int:
        return len(self._units)

    def known(self, ids: Iterable[str]) -> dict[str, MemoryUnit]:
        """Return those of some units that are held."""
        found = {uid: unit for uid in ids if (unit := self._units.get(uid)) is not None}
        for uid in found:
            self._units.move_to_end(uid)
        return found

    def keep(self, units: Iterable[MemoryUnit]) -> None:
        """Hold units; those not asked for longest give way."""
        for unit in units:
            self.forget(unit.id)
            self._units[unit.id] = unit
            self.n_chars += len(unit.text)
        while self.n_chars > self._max_chars:
            _, oldest = self._units.popitem(last=False)
            self.n_chars -= len(oldest.text)

    def forget(self, unit_id: str) -> None:
        """Let go of a unit; an unknown one is fine."""
        if (unit := self._units.pop(unit_id, None)) is not None:
            self.n_chars -= len(unit.text)
