"""Lets matplotlib find a glyph for every script, whichever font family a figure asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def extend(families: Sequence[str]) -> None:
    """Append ``families``, those that are installed, to every font list that matplotlib looks up.

    Setting ``rcParams["font.family"]`` would not last: styles, seaborn and scripts that name one font replace it.
    """
    from matplotlib import font_manager

    manager = font_manager.fontManager
    find = getattr(manager, "_find_fonts_by_props", None)
    if find is None or getattr(find, "_pandastack", False):
        return
    installed = {entry.name for entry in manager.ttflist}
    fallback = [family for family in families if family in installed]

    found: dict[Any, list[Any]] = {}  # every text of every figure asks, and the answer never changes

    def fallback_paths(prop: Any) -> list[Any]:
        key = prop.get_style(), prop.get_variant(), prop.get_weight(), prop.get_stretch()
        if key not in found:
            found[key] = []
            for family in fallback:
                other = prop.copy()
                other.set_family(family)
                found[key].append(manager.findfont(other, fallback_to_default=True))
        return found[key]

    def find_with_fallback(prop: Any, *args: Any, **kwargs: Any) -> list[Any]:
        paths = list(find(prop, *args, **kwargs))
        extra = fallback_paths(font_manager.FontProperties._from_any(prop))
        return paths + [path for path in extra if path not in paths]

    find_with_fallback._pandastack = True  # type: ignore[attr-defined]
    manager._find_fonts_by_props = find_with_fallback
