"""One programme against the real daemon through every SDK: each outcome is as programme.json says, and the same in all.

The TypeScript SDK runs it in the oldest and the newest Node, in Bun, Deno and a browser; what no runtime can make different
("once") in the oldest Node alone, and what needs local files ("disk") not in the browser.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from daemon import Daemon
from sdks import HERE, Browser, Page, Sdk, present
from test_agent import code, done, scripted
from test_exchanges import LACKING, NOT_CALLED, OPERATIONS

PROGRAMME: list[dict[str, Any]] = json.loads((HERE / "programme.json").read_text())
LANGUAGES = ["typescript", "python", "go"]
RUNTIMES = [*LANGUAGES, "node", "bun", "deno", "chromium"]
FIRST = RUNTIMES[0]  # the one that the others are held against
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # a picture of one pixel
MODEL = [
    code(f"import base64, csv\nfrom IPython.display import Image, display\ndisplay(Image(base64.b64decode('{DOT}')))\nsum(int(row['n']) for row in csv.DictReader(open('n.csv')))"),
    {**done(r"\b3\b"), "say": "FINAL ANSWER: 3"},
    code("from tools import add\nprint(add(a=1, b=2.5))"),
    *2 * [{**done(r"'sum': 3\.5"), "say": "FINAL ANSWER: 3.5"}],  # of a run, and of its fork
]

# What differs from run to run: only whether it is there is compared.
VOLATILE = {
    "created_at", "expires_at", "at", "time", "started_at", "ended_at", "built_at", "modified_at", "mtime", "last_used_at",
    "duration_ms", "boot_ms", "boot_mode", "uptime_seconds", "host_cpu_percent", "host_rss_bytes", "host_vsz_bytes", "threads",
    "cpu_percent", "cpu_seconds", "memory_bytes", "disk_bytes", "processes", "idle_seconds", "size_bytes", "request_id", "token",
    "prefix", "pid", "id", "context_id", "execution_id", "sandbox_id", "forked_from", "tree_id", "fork_tree_id", "fork_parent_id", "winner", "deleted", "reaped", "version", "commit",
    "generation", "message", "incarnation", "digest", "image/png", "usage", "limit_hits", "decided_at", "by", "cpu", "from_snapshot", "contexts", "snapshot_id", "exported_at", "imported_at", "suite", "url", "proxy_url", "preview_host",
}
# What only some SDKs can give of an outcome.
APART = {
    "ok": "of published outcomes, in TypeScript alone: an exit_code of 0",
    "exit": "an older name of exit_code, which the Go SDK has as it travels",
    "timed_out": "an error in the others",
    "hint": "Go's CommandError has the whole result",
    "mtime": "see test_exchanges.py",
    "raw": "Python and TypeScript have bytes, and Go base64: the text beside it is compared",
}


def filled(value: Any, known: dict[str, Any]) -> Any:
    """With ${name} replaced by what was saved under it."""
    if isinstance(value, dict):
        return {n: filled(v, known) for n, v in value.items()}
    if isinstance(value, list):
        return [filled(v, known) for v in value]
    if isinstance(value, str) and (whole := re.fullmatch(r"\$\{(\w+)\}", value)):
        return known[whole[1]]
    return value


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part) if part.isdigit() else part]
    return value


def alike(value: Any, name: str = "") -> Any:
    """What must be the same in every language."""
    if name in VOLATILE and value is not None:
        return f"<{name}>"
    if isinstance(value, dict):
        return {n: alike(v, n) for n, v in value.items() if n not in APART}
    if isinstance(value, list):
        return [alike(v) for v in value]
    return value


def holds(got: Any, wanted: Any) -> bool:
    """Whether what is wanted is in what was got; more fields may be there."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(holds(got.get(n), v) for n, v in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(holds, got, wanted))
    return got == wanted or (not wanted and not got)  # false, "" and none are the same


def differing(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two outcomes are not the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from differing(one.get(name), other.get(name), f"{where}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other)):
            yield from differing(*pair, f"{where}[{index}]")
    elif one != other:
        yield f"{where} is {str(one)[:300]!r} in {FIRST}, {str(other)[:300]!r}"


class Run:
    """What came of the programme in one SDK."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Any] = {}
        self.wrong: list[str] = []
        self.routes: set[str] = set()


def run(sdk: Sdk | Browser, daemon: Daemon, model: str) -> Run:
    made, known, before = Run(), {"run": sdk.name, "model": model}, routes(daemon)
    language = sdk.name if sdk.name in LANGUAGES else "typescript"
    for number, step in enumerate(PROGRAMME):
        if (language, step["op"]) in LACKING or (language == "go" and "hear" in step.get("args", {}) and step["op"] == "context.run_code"):
            continue  # Go's idiom for output as it comes is the stream
        if "once" in step and sdk.name not in LANGUAGES or "disk" in step and sdk.name == "chromium":
            continue
        outcome = sdk.do(step["op"], filled(step.get("args", {}), known))
        made.outcomes[number] = outcome
        made.wrong += [f"step {number}, {step['op']}: {wrong}" for wrong in differences(step, outcome, known)]
        for name, path in step.get("save", {}).items():
            known[name] = at(outcome.get("value"), path)
    made.routes = routes(daemon) - before
    return made


def differences(step: dict[str, Any], outcome: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    part = "error" if "error" in step else "value"
    if part not in outcome:
        yield f"{outcome} is no {part}"
        return
    wanted = filled(step.get("error", step.get("expect")), known)
    if ("error" in step or "expect" in step) and not holds(outcome[part], wanted):
        yield f"{json.dumps(outcome[part], ensure_ascii=False)[:1000]} is not {json.dumps(wanted, ensure_ascii=False)}"
    if part == "error":
        missing = [n for n in ("message",) if not outcome["error"].get(n)]
        yield from (f"the error has no {n}" for n in missing)
    kinds = [mime for result in (outcome.get("value") or {}).get("results", []) for mime in result] if "has" in step else []
    yield from (f"there is no {mime} among {kinds}" for mime in step.get("has", []) if mime not in kinds)


def routes(daemon: Daemon) -> set[str]:
    """The routes that were called with success, with how often, as the daemon counts them."""
    request = urllib.request.Request(f"{daemon.url}/metrics", headers={"Authorization": f"Bearer {daemon.key}"})
    text = urllib.request.urlopen(request, timeout=30).read().decode()
    return set(re.findall(r'^(pandastack_api_requests_total\{code="2\d\d",route=".*?"\} \d+)', text, re.M))


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Daemon, Page]]:
    page = Page()
    daemon = Daemon(pool_ready=1, pool_prepared=1, allowed_origins=page.origin).start()
    yield daemon, page
    code, tail = daemon.stop(), daemon.tail()
    daemon.remove()
    page.close()
    assert code == 0, tail


@pytest.fixture(scope="module")
def runs(world: tuple[Daemon, Page], tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Run]":
    """What came of each, the first time that somebody asks."""
    daemon, page = world
    folder: Path = tmp_path_factory.mktemp("model")

    class Runs(dict[str, Run]):
        def __missing__(self, name: str) -> Run:
            model = scripted(folder, MODEL) if name in LANGUAGES else nullcontext("")
            with model as url, Browser(page, daemon.env) if name == "chromium" else Sdk(name, daemon.env) as sdk:
                self[name] = run(sdk, daemon, url)
            return self[name]

    return Runs()


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_outcomes_are_right(name: str, runs: "dict[str, Run]") -> None:
    assert "\n".join(runs[name].wrong) == ""


@pytest.mark.parametrize("name", [n for n in RUNTIMES if n != FIRST])
def test_the_outcomes_are_the_same(name: str, runs: "dict[str, Run]") -> None:
    ours, theirs = runs[FIRST].outcomes, runs[name].outcomes
    differ = []
    for number in sorted(ours.keys() & theirs.keys()):
        step = PROGRAMME[number]
        pair = [present(alike(outcome)) for outcome in (ours[number], theirs[number])]
        if "same" in step:
            pair = [{n: (o.get("value") or {}).get(n) for n in step["same"]} for o in pair]
        differ += [f"step {number}, {step['op']}: {said}" for said in differing(*pair)]
    assert "\n".join(differ) == ""


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_route_is_called(name: str, runs: "dict[str, Run]") -> None:
    called = {match[1] for line in runs[name].routes if (match := re.search(r'route="(.*?)"', line))}
    lacking = {"POST /v1/sandboxes/{id}/exec/stream"} if (name, "sandbox.exec_stream") in LACKING else set()
    assert {f"{o.method} {o.path}" for n, o in OPERATIONS.items() if n not in NOT_CALLED} - called - lacking == set()
