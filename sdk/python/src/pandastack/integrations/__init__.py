"""Adapters for the frameworks that agents are written with, one module each.

    pip install "pandastack[langchain]"

    from pandastack.integrations.langchain import python_tool

A module imports its framework, and says at import which version it wants when it is missing or too old. Nothing here
is imported by the rest of the package.
"""

from .observation import Figure, Observation

__all__ = ["Figure", "Observation"]
