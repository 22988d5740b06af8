"""What the kernel changes in libraries, each at its import: how they show things, never what they compute."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import figures
from .on_import import on_import


def set_up(shell: Any) -> None:
    """Register everything; nothing is imported by it."""
    on_import("matplotlib", figures.use_backend)
    on_import("matplotlib.backends.backend_agg", figures.adopt_agg)
    on_import("matplotlib.font_manager", figures.extend_fonts)
    on_import("pandas", _pandas)


def _pandas(pandas: ModuleType) -> None:
    # pandas takes us for a terminal and would show every column of a wide table.
    pandas.set_option("display.max_columns", 20)
