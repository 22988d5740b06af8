"""The matplotlib backend of a context: Agg, with figures shown as results.

It is selected by ``pandastack_kernel.figures``. Scripts that say ``matplotlib.use("Agg")`` get the same showing,
because that class of canvas is given the same manager.
"""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from . import figures


class FigureManager(FigureManagerBase):
    """Shows a figure by sending it as a result."""

    @classmethod
    def pyplot_show(cls, *, block: bool | None = None) -> None:
        figures.show()

    def show(self) -> None:
        figures.show(self.canvas.figure)


class FigureCanvas(FigureCanvasAgg):
    """Draws with Agg."""

    manager_class: Any = FigureManager


FigureCanvasAgg.manager_class = FigureManager
