"""Runs a function when a module is first imported, at once if it already is."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], Any]

_actions: dict[str, list[Action]] = {}


def on_import(name: str, action: Action) -> None:
    """Call ``action(module)`` as soon as ``name`` is imported. An action that fails is noted, the import stands."""
    module = sys.modules.get(name)
    if module is not None and getattr(getattr(module, "__spec__", None), "_initializing", False) is False:
        _act(module, action)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _actions.setdefault(name, []).append(action)


def _act(module: ModuleType, action: Action) -> None:
    try:
        action(module)
    except Exception as error:
        print(f"[kernel] setting up {module.__name__} failed: {type(error).__name__}: {error}", file=sys.stderr)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _actions:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _after_loading(spec.loader, _actions.pop(name))
                return spec
        return None


def _after_loading(loader: Any, actions: list[Action]) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        for action in actions:
            _act(module, action)

    loader.exec_module = exec_module
