"""altair charts as results: HTML, the Vega-Lite specification, and a picture."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from . import display
from .renderer import Renderer, RenderError


def set_up(shell: Any, renderer: Renderer, altair: ModuleType) -> None:
    """Once altair is imported."""
    shell.display_formatter.special[altair.TopLevelMixin] = lambda chart: _bundle(renderer, altair, chart)


def _bundle(renderer: Renderer, altair: ModuleType, chart: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    specification = chart.to_dict()
    made = altair.renderers.get()(specification)
    data, metadata = made if isinstance(made, tuple) else (made or {}, {})
    data = {mime: value for mime, value in data.items() if mime != "text/plain"}
    text = json.dumps(specification, default=str)
    version = str(altair.SCHEMA_VERSION).removeprefix("v")
    data.setdefault(f"application/vnd.vegalite.v{version.partition('.')[0]}+json", text)
    if "image/png" not in data:
        try:
            picture = renderer.draw(
                "vegalite", text, format="png", scale=1.5, version=".".join(version.split(".")[:2])
            )
            data["image/png"] = picture
        except RenderError as error:
            display.note(f"the altair chart has no picture, only HTML and JSON: {error}")
    return data, metadata
