"""One zygote for the whole run, a fresh context for each test."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import agent  # noqa: E402


def have(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip where a library is missing; inside the template nothing may be."""
    if os.environ.get("KERNEL_TESTS_FULL"):
        return pytest.mark.skipif(False, reason="")
    return pytest.mark.skipif(not have(*modules), reason=f"needs {', '.join(modules)}")


@pytest.fixture(scope="session")
def zygote() -> Iterator[agent.Zygote]:
    with agent.zygote() as made:
        assert not made.ready["failed"], made.ready["failed"]
        yield made


@pytest.fixture
def context(zygote: agent.Zygote) -> Iterator[agent.Context]:
    made = zygote.context()
    yield made
    made.close()
