"""matplotlib figures as results: sent when shown, sent when a cell ends with them open, never twice."""

from __future__ import annotations

import io
from typing import Any

from IPython.core.getipython import get_ipython
from traitlets import Any as Any_
from traitlets import Bool, Dict, Set, observe
from traitlets.config import Configurable

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


class InlineBackend(Configurable):
    """The settings that notebooks change with ``%config InlineBackend.figure_format = "retina"``."""

    figure_formats = Set({"png"}, help="png, retina, jpeg, svg or pdf").tag(config=True)
    figure_format = Any_(help="the same as one name or a list").tag(config=True)
    print_figure_kwargs = Dict({"bbox_inches": "tight"}, help="arguments of print_figure").tag(config=True)
    close_figures = Bool(True, help="accepted; figures are always closed when shown").tag(config=True)
    rc = Dict(help="accepted; set matplotlib.rcParams").tag(config=True)

    @observe("figure_format")
    def _one(self, change: Any) -> None:
        self.figure_formats = {change["new"]} if isinstance(change["new"], str) else set(change["new"])

    @observe("figure_formats", "print_figure_kwargs")
    def _select(self, change: Any) -> None:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(self.parent, self.figure_formats, **self.print_figure_kwargs)


def set_up(shell: Any, module: Any) -> None:
    """Once matplotlib's figures are imported."""
    shell.display_formatter.formatters["image/png"].for_type(module.Figure, png)
    shell.display_formatter.after[module.Figure] = shown
    shell.display_formatter.unhurried.add(module.Figure)


def png(figure: Any) -> bytes | None:
    """The figure as PNG, cut to what is drawn, or None for one with nothing in it."""
    if not figure.axes and not figure.lines and not figure.texts and not figure.images and not figure.patches:
        return None
    out = io.BytesIO()
    try:
        figure.canvas.print_figure(out, format="png", bbox_inches="tight", facecolor=figure.get_facecolor())
    except Exception as error:  # IPython would swallow it; `shown` raises it where the figure was shown
        figure._pandastack_error = error
        return None
    return out.getvalue()


def shown(figure: Any, data: dict[str, Any]) -> None:
    """Called with the bundle of a figure: pictures carry no text, and what was shown need not be shown again.

    Raises:
        Exception: what drawing it raised.
    """
    error = figure.__dict__.pop("_pandastack_error", None)
    if error is not None:
        raise error
    if any(mime.startswith(("image/", "application/pdf")) for mime in data):
        data.pop("text/plain", None)
        figure._pandastack_shown = True
        figure.stale = False  # an artist changed after this makes it stale again


def show(figure: Any = None) -> None:
    """What ``plt.show()`` and ``fig.show()`` do: send the open figures, or this one, and close them."""
    from matplotlib._pylab_helpers import Gcf

    shell = get_ipython()
    failure: Exception | None = None
    for manager in list(Gcf.get_all_fig_managers()):
        if figure is not None and manager.canvas.figure is not figure:
            continue
        try:
            if shell is not None and _is_news(manager.canvas.figure):
                display.publish(shell, manager.canvas.figure)
        except Exception as error:
            failure = failure or error
        finally:
            Gcf.destroy(manager)
    if failure is not None:
        raise failure


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
