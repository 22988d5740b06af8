"""Adapters of frameworks tell a model of its cell in the same words, in Python and in TypeScript."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from pandastack.execution import Execution
from pandastack.integrations.observation import describe, failure, middle, observe
from pandastack import APIConnectionError, NotFoundError
from sdks import ROOT, command

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TABLE = {"text/plain": "   n\n0  1", "text/html": "<table>1</table>"}
RESULTS = [TABLE, {"image/png": PNG + "\n"}, {"image/svg+xml": "<svg/>"}, {"image/jpeg": "é"}, {"x/y": "1"}, {"text/markdown": "**m**"}]
ENDS = ("ok", "error", "timeout", "interrupted", "oom", "kernel_died")
CELLS: list[dict[str, Any]] = [
    {"stdout": "\n\nhello\n", "stderr": "careful\n", "results": RESULTS, "results_meta": [{"is_last_expression": n == 0} for n in range(6)]},
    {"results": [{"image/png": PNG}] * 11},
    {"results": [{"text/plain": "ü" * 9999}], "stdout": "x" * 99_999, "stderr": "y" * 99_999},
    {"stdout": "x", "truncated": True, "output_path": "/workspace/out", "results_dropped": 2},
    *({"end": end, "state_survived": survived, "stdout": out, "error": "Traceback\nKeyError: 'x'" if end == "error" else None}
      for end in ENDS for survived in (True, False) for out in ("", "out")),
]
LONG = "ü" * 60 + "\n[... 1000 bytes left out; all of it is in /w/o ...]\n" + "€" * 60
SAY = """
import { describe, failure, middle, observe } from "%(dist)s/observation.js";
import * as sdk from "%(dist)s/index.js";
const { cells, long, cuts } = JSON.parse(await new Response(process.stdin).text());
const seen = cells.flatMap((cell) => [undefined, 2.5].map((deadline) => observe(sdk.Execution.fromWire(cell), deadline)));
const failures = [new sdk.NotFoundError("gone"), new sdk.NetworkError("it broke"), new sdk.NetworkError("refused", { sent: false })].map(failure);
console.log(JSON.stringify({ seen, failures: failures.map(({ text }) => text), cut: cuts.map((most) => middle(long, most)), described: [describe(true), describe(false)] }));
"""


def test_models_are_told_the_same() -> None:
    node = command("typescript")[0]  # built
    cuts = list(range(60, 300, 7))
    program = SAY % {"dist": (ROOT / "sdk/typescript/dist/esm").as_uri()}
    given = json.dumps({"cells": CELLS, "long": LONG, "cuts": cuts})
    done = subprocess.run([node, "--input-type=module", "-e", program], input=given, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    ours = [observe(Execution.from_wire(cell), deadline) for cell in CELLS for deadline in (None, 2.5)]
    for mine, other in zip(ours, theirs["seen"], strict=True):
        assert mine.text == other["text"]
        assert [(one.mime, one.base64) for one in mine.figures] == [(one["mime"], one["base64"]) for one in other["figures"]]
        assert list(mine.html) == other["html"] and (mine.execution and mine.execution.end) == other["end"]
    errors = [NotFoundError("gone"), APIConnectionError("it broke"), APIConnectionError("refused", sent=False)]
    assert [failure(error).text for error in errors] == theirs["failures"]
    assert [middle(LONG, most) for most in cuts] == theirs["cut"]
    assert [describe(True), describe(False)] == theirs["described"]
