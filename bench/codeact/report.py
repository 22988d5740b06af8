"""The tables: turns and tokens of each arm, task by task and all together."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from .arms import CODE, LOOKS, ONE, TOGETHER, TOOL, Played
from .counting import Tokens, around, parts, said

TARGET = 0.25  # of the input tokens of one call a turn, all tasks together


@dataclass(frozen=True)
class Cost:
    """What playing a task took: turns, calls, and tokens; `prompt` and `tools` are parts of `input`."""

    turns: int
    calls: int
    input: int
    output: int
    prompt: int
    tools: int


def cost(played: Played, tokens: Tokens, dialect: str) -> Cost:
    asked = [parts(request, dialect) for request in played.requests]
    kinds = {kind: sum(tokens.count(each[kind]) for each in asked) for kind in ("prompt", "tools", "conversation")}
    output = tokens.count(text for reply in played.replies for text in said(reply))
    return Cost(played.turns, played.calls, sum(kinds.values()) + sum(map(around, played.requests)), output, kinds["prompt"], kinds["tools"])


def costs(all_played: list[Played], tokens: Tokens, dialect: str) -> dict[str, dict[str, Cost]]:
    """By task, named FAMILY/TASK, and then by arm."""
    for played in all_played:  # counted at once
        for request in played.requests:
            tokens.note(text for texts in parts(request, dialect).values() for text in texts)
        tokens.note(text for reply in played.replies for text in said(reply))
    out: dict[str, dict[str, Cost]] = {}
    for played in all_played:
        out.setdefault(f"{played.family}/{played.task}", {})[played.arm] = cost(played, tokens, dialect)
    return out


@dataclass(frozen=True)
class Sum:
    """An arm over all tasks.

    Attributes:
        ratio: of its input tokens to those of one call a turn, all tasks together; `median` and `worst` of the tasks' own ratios.
        bare: the same ratio with the system prompts of both left out, but not the tools.
        loses: tasks in which it takes as many input tokens or more.
    """

    arm: str
    tasks: int
    turns: float
    input: float
    output: float
    prompt: float
    tools: float
    ratio: float
    bare: float
    median: float
    worst: float
    loses: list[str]


def summed(by_task: dict[str, dict[str, Cost]], arm: str, beside: str = ONE) -> Sum:
    names = [name for name, arms in by_task.items() if arm in arms and beside in arms]
    mine, theirs = [by_task[name][arm] for name in names], [by_task[name][beside] for name in names]
    ratios = {name: by_task[name][arm].input / by_task[name][beside].input for name in names}
    mean = {field: sum(getattr(each, field) for each in mine) / len(mine) for field in ("turns", "input", "output", "prompt", "tools")}
    return Sum(
        arm, len(names), ratio=sum(c.input for c in mine) / sum(c.input for c in theirs), median=median(ratios.values()), worst=max(ratios.values()),
        bare=sum(c.input - c.prompt for c in mine) / sum(c.input - c.prompt for c in theirs), loses=[name for name, r in ratios.items() if r >= 1], **mean,
    )


def table(rows: list[list[str]]) -> str:
    """As Markdown; the first row has the names, and all columns but the first are numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = ["| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) + " |" for row in rows]
    return "\n".join([out[0], "| " + " | ".join("-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)) + " |", *out[1:]])


def pooled(by_task: dict[str, dict[str, Cost]]) -> str:
    """The arms beside one call a turn, a task on average."""
    rows = [["a task on average", "turns", "input tokens", "÷ one call a turn", "median", "worst", "without prompts", "output tokens", "of input: prompt", "tools"]]
    for arm in (ONE, TOGETHER, CODE, LOOKS, TOOL):
        if any(arm in arms for arms in by_task.values()):
            s = summed(by_task, arm)
            rows.append([arm, f"{s.turns:.2f}", f"{s.input:,.0f}", f"{s.ratio:.2f}", f"{s.median:.2f}", f"{s.worst:.2f}", f"{s.bare:.2f}", f"{s.output:,.0f}", f"{s.prompt:,.0f}", f"{s.tools:,.0f}"])
    return table(rows)


def families(by_task: dict[str, dict[str, Cost]]) -> str:
    rows = [["family (tasks)", "turns: one", "together", "code", "input: one", "together", "code", "code ÷ one", "code ÷ together"]]
    for name in dict.fromkeys(task.partition("/")[0] for task in by_task):
        own = {task: arms for task, arms in by_task.items() if task.startswith(name + "/")}
        one, both, code = (summed(own, arm) for arm in (ONE, TOGETHER, CODE))
        rows.append([f"{name} ({len(own)})", *(f"{s.turns:.2f}" for s in (one, both, code)), *(f"{s.input:,.0f}" for s in (one, both, code)),
                     f"{code.ratio:.2f}", f"{summed(own, CODE, TOGETHER).ratio:.2f}"])
    return table(rows)


def each(by_task: dict[str, dict[str, Cost]]) -> str:
    rows = [["task", "calls", "turns: one", "together", "code", "input: one", "together", "code", "code ÷ one", "code ÷ together"]]
    for name, arms in by_task.items():
        one, both, code = arms[ONE], arms[TOGETHER], arms[CODE]
        rows.append([name, str(one.calls), *(str(c.turns) for c in (one, both, code)), *(f"{c.input:,}" for c in (one, both, code)),
                     f"{code.input / one.input:.2f}", f"{code.input / both.input:.2f}"])
    return table(rows)


def losing(by_task: dict[str, dict[str, Cost]]) -> str:
    """Where code takes as many input tokens as JSON, or more."""
    out = []
    for beside in (ONE, TOGETHER):
        names = summed(by_task, CODE, beside).loses
        out.append(f"code takes as much as {beside}, or more, in {len(names)} of {len(by_task)}" + (": " + ", ".join(names) if names else ""))
    return "\n".join(out)


def as_json(by_task: dict[str, dict[str, Cost]]) -> dict[str, Any]:
    arms = [arm for arm in (ONE, TOGETHER, CODE, LOOKS, TOOL) if any(arm in each for each in by_task.values())]
    return {
        "arms": [vars(summed(by_task, arm)) for arm in arms],
        "beside calls together": vars(summed(by_task, CODE, TOGETHER)),
        "tasks": {name: {arm: vars(c) for arm, c in each.items()} for name, each in by_task.items()},
    }
