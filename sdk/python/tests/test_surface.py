"""The two surfaces are one: the same names, signatures, defaults and words."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_server import KEY, FakeServer

import pandastack

ROOT = Path(__file__).resolve().parent.parent
PAIRS = [
    (getattr(pandastack, name[len("Async") :]), getattr(pandastack, name))
    for name in pandastack.__all__
    if name.startswith("Async")
]


def as_sync(text: str) -> str:
    return re.sub(r"\bAsync(?=[A-Z])", "", text).replace("await ", "")


def members(kind: type) -> "dict[str, Any]":
    renamed = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
    return {
        renamed.get(name, name): inspect.getattr_static(kind, name)
        for name in vars(kind)
        if not name.startswith("_") or name in renamed or name in renamed.values() or name == "__init__"
    }


def function(member: Any) -> Any:
    return getattr(member, "fget", None) or getattr(member, "__func__", member)


@pytest.mark.parametrize("sync, asynchronous", PAIRS, ids=[pair[0].__name__ for pair in PAIRS])
def test_same_names_signatures_defaults_and_docstrings(sync: type, asynchronous: type) -> None:
    ours, theirs = members(sync), members(asynchronous)
    assert set(ours) == set(theirs)
    assert (sync.__doc__ or "").strip() == as_sync(asynchronous.__doc__ or "").strip()
    for name, member in ours.items():
        one, other = function(member), function(theirs[name])
        if not callable(one):
            continue
        assert not inspect.iscoroutinefunction(one), name
        assert str(inspect.signature(one)) == as_sync(str(inspect.signature(other))), name
        assert one.__doc__ == (as_sync(other.__doc__) if other.__doc__ else None), name
        assert one.__doc__ or name.startswith("_"), f"{sync.__name__}.{name} has no docstring"


def test_the_generated_files_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate_sync.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_synchronous_half_does_without_aiohttp() -> None:
    code = "import sys, pandastack; assert 'aiohttp' not in sys.modules; pandastack.AsyncSandbox; assert 'aiohttp' in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_asynchronous_half_leaves_no_connection_open(fake: FakeServer) -> None:
    """Even when nobody closes anything and the loop ends, as in a script."""
    code = f"""
import asyncio, gc
from pandastack import AsyncSandbox
async def main():
    for sandbox in await AsyncSandbox.list(api_url={fake.url!r}, api_key={KEY!r}):
        last = sandbox
    await last.run_code("1+1")
    async for event in (await last.create_code_context()).stream("2+2"):
        break
asyncio.run(main())
asyncio.run(main())
gc.collect()
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "always", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "nclosed" not in done.stderr, done.stderr


def test_every_public_name_is_there() -> None:
    for name in pandastack.__all__:
        assert getattr(pandastack, name) is not None
    with pytest.raises(AttributeError, match="AsyncNothing"):
        pandastack.AsyncNothing  # noqa: B018


def test_what_a_sandbox_sends_is_data_and_never_code() -> None:
    """Nothing in the SDK unpickles, evaluates or executes: what comes out of a sandbox is text and JSON."""
    loaders = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert all(alias.asname is None for alias in node.names if alias.name.split(".")[0] in loaders), where
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in loaders:
                assert node.attr == "dumps", where  # what goes in may be pickled
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in loaders, where
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, where
