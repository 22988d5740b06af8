"""All tasks of the pack."""

from __future__ import annotations

from . import buoys, harbour, isles, ribbons, site
from .pack import Family, Task

FAMILIES: list[Family] = [buoys.FAMILY, ribbons.FAMILY, harbour.FAMILY, isles.FAMILY, site.FAMILY]


def some(family: Family) -> list[Task]:
    """Three of a family: one that is a single call, and two that are not."""
    return [family.tasks[0], family.tasks[4], family.tasks[-1]]
