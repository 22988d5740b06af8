"""What the kernel changes in libraries, each at its import: how they show things, never what they compute."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import altair_charts, figures, plotly_figures
from .on_import import on_import
from .renderer import Renderer


def set_up(shell: Any, renderer: Renderer) -> None:
    """Register everything; nothing is imported by it."""
    on_import("matplotlib", figures.use_backend)
    on_import("matplotlib.backends.backend_agg", figures.adopt_agg)
    on_import("matplotlib.font_manager", figures.extend_fonts)
    on_import("matplotlib.figure", lambda module: figures.set_up(shell, module))
    on_import("pandas", _pandas)
    on_import("plotly.basedatatypes", lambda module: plotly_figures.set_up_figures(shell, renderer, module))
    for name in ("plotly.io", "plotly.io._renderers"):
        on_import(name, lambda module: plotly_figures.set_up_showing(shell, module))
    on_import("plotly.offline", plotly_figures.set_up_offline)
    on_import("kaleido", lambda module: plotly_figures.set_up_kaleido(renderer, module))
    on_import("altair", lambda module: altair_charts.set_up(shell, renderer, module))
    on_import("PIL.Image", lambda module: _images(shell, module))
    on_import("PIL.ImageShow", lambda module: module.register(module.IPythonViewer, 0))  # before any window


def _images(shell: Any, module: ModuleType) -> None:
    # Pillow offers PNG and JPEG of every image; one picture is enough, and PNG loses nothing.
    shell.display_formatter.after[module.Image] = lambda _, data: "image/png" in data and data.pop("image/jpeg", None)


def _pandas(pandas: ModuleType) -> None:
    # pandas takes us for a terminal and would show every column of a wide table.
    pandas.set_option("display.max_columns", 20)
