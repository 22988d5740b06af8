"""plotly figures as results: HTML with a container, JSON, and a picture; whichever way they are shown."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from . import display
from .renderer import Renderer, RenderError

JSON_TYPE = "application/vnd.plotly.v1+json"
_WIDTH, _HEIGHT = 700, 500  # pixels, plotly's own defaults


def set_up_figures(shell: Any, renderer: Renderer, basedatatypes: ModuleType) -> None:
    """Once plotly's figures are imported."""
    shell.display_formatter.special[basedatatypes.BaseFigure] = lambda figure: (_bundle(renderer, figure), {})


def set_up_showing(shell: Any, module: ModuleType) -> None:
    """Make ``fig.show()`` send a result, whichever renderer the code asks for: they open windows or send megabytes."""

    def show(fig: Any, *args: Any, **kwargs: Any) -> None:
        """Send the figure as a result."""
        import plotly.graph_objects as graph_objects

        display.publish(shell, graph_objects.Figure(fig) if isinstance(fig, dict) else fig)

    module.show = show


def set_up_offline(offline: ModuleType) -> None:
    """Keep ``init_notebook_mode`` from sending the whole of plotly.js."""
    offline.init_notebook_mode = lambda *_, **__: None


def set_up_kaleido(renderer: Renderer, kaleido: ModuleType) -> None:
    """Let ``fig.write_image()`` and ``fig.to_image()`` draw in the helper process, too."""
    draw_here = kaleido.calc_fig_sync

    def calc_fig_sync(fig: Any, *args: Any, opts: Any = None, kopts: Any = None, **kwargs: Any) -> Any:
        other_scripts = kopts and (kopts.get("plotlyjs") or kopts.get("mathjax"))
        if args or other_scripts or kwargs.get("topojson") or isinstance(fig, (list, tuple)):
            return draw_here(fig, *args, opts=opts, kopts=kopts, **kwargs)
        from plotly.io import to_json

        options = {name: value for name, value in (opts or {}).items() if value is not None}
        options.setdefault("format", "png")
        return renderer.draw("plotly", to_json(fig, validate=False), **options)

    kaleido.calc_fig_sync = calc_fig_sync


def _bundle(renderer: Renderer, figure: Any) -> dict[str, Any]:
    text = figure.to_json()
    data: dict[str, Any] = {
        # The script is loaded by the page that shows it; embedding it would make every chart megabytes.
        "text/html": figure.to_html(full_html=False, include_plotlyjs="cdn", default_height=_HEIGHT),
        JSON_TYPE: text,
    }
    layout = json.loads(text).get("layout", {})
    width, height = layout.get("width") or _WIDTH, layout.get("height") or _HEIGHT
    try:
        data["image/png"] = renderer.draw("plotly", text, format="png", width=width, height=height, scale=1)
    except RenderError as error:
        display.note(f"the plotly figure has no picture, only HTML and JSON: {error}")
    return data
