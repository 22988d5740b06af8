"""Several analyses of one parsed table, side by side, and the best one goes on.

`by_contexts` copies the interpreter, `by_tree` and `by_explore` copy the sandbox. Each gives what became of every
attempt and the branch that was kept, in which you can go on.
"""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from pandastack import Candidate, CodeContext, Sandbox

# Parsed once. What a branch finds: `past`, and no `actual`.
PREPARE = """
import pandas as pd
sales = pd.read_csv('/workspace/sales.csv', parse_dates=['date'])
table = sales.pivot_table(index=sales['date'].dt.month, columns='region', values='revenue', aggfunc='sum').fillna(0)
past = table.loc[:11]
past.to_pickle('/workspace/past.pkl')  # for commands, which do not see the variables
table.loc[[12]].to_pickle('/workspace/actual.pkl')
past
"""
# Run behind every attempt: how far the forecast is off, on average over the regions.
SCORE = """
import pandas as pd
actual = pd.read_pickle('/workspace/actual.pkl').iloc[0]
print('off by', round(float((forecast - actual).abs().mean()), 2))
"""


@dataclass
class Attempt:
    """Code that computes `forecast`, a series with a value for each region, from `past`."""

    name: str
    code: str


@dataclass
class Tried:
    """What became of an attempt: how far it was off, or why there is no number."""

    name: str
    off: Optional[float] = None
    error: str = ""


class NothingWorked(Exception):
    """Every attempt failed; the message says how."""


def best(tried: List[Tried]) -> int:
    """The index of the smallest error."""
    able = [i for i, t in enumerate(tried) if t.off is not None]
    if not able:
        raise NothingWorked("; ".join(f"{t.name}: {t.error or 'no number'}" for t in tried))
    return min(able, key=lambda i: tried[i].off or 0.0)


def by_contexts(session: CodeContext, attempts: List[Attempt]) -> Tuple[List[Tried], CodeContext]:
    """Each attempt in a copy of the interpreter: memory is shared, files are too. The cheapest way."""
    branches: List[CodeContext] = session.fork(count=len(attempts))
    with ThreadPoolExecutor(len(branches)) as pool:
        tried = list(pool.map(_attempt, branches, attempts))
    chosen = None
    try:
        chosen = best(tried)
    finally:
        for number, branch in enumerate(branches):
            if number != chosen:
                branch.close()
    return tried, branches[chosen]


def by_tree(sandbox: Sandbox, session: CodeContext, attempts: List[Attempt]) -> Tuple[List[Tried], Sandbox]:
    """Each attempt in a copy of the whole sandbox, with files and limits of its own; `promote` keeps one of them."""
    branches = sandbox.fork_tree(len(attempts))
    try:
        with ThreadPoolExecutor(len(branches)) as pool:
            # A context has the same id, and the same variables, in every copy.
            tried = list(pool.map(_attempt, [b.context(session.id) for b in branches], attempts))
        winner = branches[best(tried)]
        winner.promote(cleanup_siblings=True)
    except BaseException:
        for branch in branches:
            branch.kill()
        raise
    return tried, winner


def by_explore(sandbox: Sandbox, attempts: List[Attempt]) -> Tuple[List[Tried], Sandbox]:
    """The same in one call, when the attempts are commands: forks, runs, scores, promotes and cleans up.

    Raises:
        ExploreError: every attempt failed; has their outcomes.
    """
    read = "import pandas as pd\npast = pd.read_pickle('/workspace/past.pkl')\n"
    candidates = [Candidate(["python3", "-c", read + a.code + SCORE], label=a.name) for a in attempts]
    found = sandbox.explore(candidates, score=lambda outcome: _score(outcome.stdout), select="min")
    tried = [Tried(o.label, _number(o.stdout), o.error or _last(o.stderr)) for o in found.outcomes]
    return tried, found.winner


def _attempt(branch: CodeContext, attempt: Attempt) -> Tried:
    ex = branch.run_code(attempt.code + "\n" + SCORE, timeout_seconds=60)
    return Tried(attempt.name, _number(ex.stdout), _last(str(ex.error or "")))


def _number(text: str) -> Optional[float]:
    found = re.search(r"off by ([0-9.]+)", text)
    return float(found.group(1)) if found else None


def _score(text: str) -> float:
    off = _number(text)
    return math.nan if off is None else off  # what has no number is not chosen


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2]
