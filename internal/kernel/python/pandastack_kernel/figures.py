"""matplotlib figures as results: sent when shown, sent when a cell ends with them open, never twice."""

from __future__ import annotations

import io
from typing import Any

from IPython.core.getipython import get_ipython

from . import display, fonts

BACKEND = "module://pandastack_kernel.matplotlib_backend"

#: Families tried, in this order, for a character that the figure's own font has no glyph for.
FALLBACK_FAMILIES = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Noto Sans Symbols",
    "Noto Sans Symbols2",
    "Noto Sans Math",
    "Symbola",  # emoji as outlines: matplotlib cannot draw the bitmaps of colour fonts
)


def set_up(shell: Any, module: Any) -> None:
    """Once matplotlib's figures are imported."""
    shell.display_formatter.formatters["image/png"].for_type(module.Figure, png)
    shell.display_formatter.after[module.Figure] = shown


def png(figure: Any) -> bytes | None:
    """The figure as PNG, cut to what is drawn, or None for one with nothing in it."""
    if not figure.axes and not figure.lines and not figure.texts and not figure.images and not figure.patches:
        return None
    out = io.BytesIO()
    figure.canvas.print_figure(out, format="png", bbox_inches="tight", facecolor=figure.get_facecolor())
    return out.getvalue()


def shown(figure: Any, data: dict[str, Any]) -> None:
    """Called with the bundle of a figure: pictures carry no text, and what was shown need not be shown again."""
    if any(mime.startswith(("image/", "application/pdf")) for mime in data):
        data.pop("text/plain", None)
        figure._pandastack_shown = True
        figure.stale = False  # an artist changed after this makes it stale again


def show(figure: Any = None) -> None:
    """What ``plt.show()`` and ``fig.show()`` do: send the open figures, or this one, and close them."""
    from matplotlib._pylab_helpers import Gcf

    shell = get_ipython()
    for manager in list(Gcf.get_all_fig_managers()):
        if figure is not None and manager.canvas.figure is not figure:
            continue
        try:
            if shell is not None and _is_news(manager.canvas.figure):
                display.publish(shell, manager.canvas.figure)
        finally:
            Gcf.destroy(manager)


def flush() -> None:
    """Send and close what a cell left open. A figure that cannot be drawn is the cell's error."""
    import sys

    if "matplotlib.pyplot" not in sys.modules:
        return
    from matplotlib._pylab_helpers import Gcf

    try:
        show()
    finally:
        Gcf.destroy_all()


def _is_news(figure: Any) -> bool:
    return not getattr(figure, "_pandastack_shown", False) or figure.stale


def use_backend(matplotlib: Any) -> None:
    """Select our backend, once matplotlib is imported. Not by MPLBACKEND, which scripts run by a cell would inherit."""
    matplotlib.use(BACKEND)


def adopt_agg(_: Any) -> None:
    """Give Agg's canvas our manager too, so that ``matplotlib.use("Agg")`` changes nothing."""
    from . import matplotlib_backend  # noqa: F401


def extend_fonts(_: Any) -> None:
    fonts.extend(FALLBACK_FAMILIES)
