"""The SDKs as programs that take operations: one line of JSON in, one out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@cache
def command(name: str) -> list[str] | None:
    """The program of an SDK, built if need be; None when its runtime is not here."""
    match name:
        case "python":
            return [sys.executable, str(HERE / "sdk_python.py")]
        case "go":
            program = ROOT / ".cache" / "conformance" / "sdk_go"
            mine = program.with_name(f"sdk_go.{os.getpid()}")  # other tests may be running the other
            subprocess.run(["go", "build", "-o", mine, "./test/conformance/sdk_go"], cwd=ROOT, check=True)
            mine.replace(program)
            return [str(program)]
        case "typescript":
            subprocess.run(["make", "-s", "ts"], cwd=ROOT, check=True)
            return ["node", str(HERE / "sdk_typescript.mjs")]
        case "bun" | "deno":
            found = ROOT / "sdk" / "typescript" / "node_modules" / ".bin" / name
            if not found.exists():
                return None
            return [str(found), "run", *(["--allow-all"] if name == "deno" else []), str(HERE / "sdk_typescript.mjs")]
    raise ValueError(name)


@cache
def operations(name: str) -> frozenset[str]:
    """What an SDK's program knows to do."""
    return frozenset(json.loads(subprocess.run([*command(name), "--ops"], capture_output=True, check=True).stdout))


class Sdk:
    """One SDK at work. A context manager."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command(name), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def do(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """The outcome: {"value": …} or {"error": …}."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"op": op, "args": args}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program of the {self.name} SDK ended in {op}"
        return json.loads(line)

    def __enter__(self) -> "Sdk":
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        if self._process.wait(timeout=30) != 0:
            raise AssertionError(f"the program of the {self.name} SDK ended with {self._process.returncode}")


def present(value: Any) -> Any:
    """Without what is absent, empty, zero or false: SDKs say that each in their own way. Times in one form."""
    if isinstance(value, dict):
        kept = {name: present(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", 0, False, [], {})}
    if isinstance(value, list):
        return [present(item) for item in value]
    if isinstance(value, str) and value.endswith("+00:00"):
        return value.removesuffix("+00:00") + "Z"
    return value
