"""Trying several commands side by side, each in a copy of the sandbox: see `AsyncSandbox.explore`."""

from __future__ import annotations

import shlex
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ..errors import ExploreError, PandastackError, SandboxTimeout
from ..records import Candidate, Exploration, Outcome, pick
from .transport import side_by_side

MOST = 16
TAIL = 4096  # characters of each stream that an outcome keeps
MARKER = "/tmp/.pandastack-explore"
FILES = f"find /workspace /app /work /root /home -type f -newer {MARKER} 2>/dev/null | head -n 200"


async def explore(
    sandbox: Any,
    candidates: Sequence[Union[str, Candidate]],
    *,
    score: Optional[Callable[[Outcome], float]],
    select: str,
    max_concurrency: int,
    require_success: bool,
    cleanup_losers: bool,
    promote_winner: bool,
    capture_files: bool,
    timeout_seconds: float,
    metadata: Optional[Dict[str, str]],
) -> Exploration:
    tries = [c if isinstance(c, Candidate) else Candidate(c) for c in candidates]
    if not 1 <= len(tries) <= MOST:
        raise ValueError(f"candidates must be 1 to {MOST} commands, not {len(tries)}")
    if select not in ("max", "min"):
        raise ValueError(f"select must be 'max' or 'min', not {select!r}")
    if max_concurrency < 1:
        raise ValueError("max_concurrency must be at least 1")
    branches = await sandbox.fork_tree(len(tries), metadata={**(metadata or {}), "explore": "1"})

    async def attempt(index: int) -> Outcome:
        return await _attempt(branches[index], index, tries[index], timeout_seconds, capture_files)

    outcomes: List[Outcome] = []
    found = Exploration(outcomes=outcomes, tree_id=branches[0].metadata.get("fork_tree_id"))
    try:
        # Branches that could not be made leave the last candidates without one.
        outcomes.extend(await side_by_side(max_concurrency, attempt, range(len(branches))))
        found.errors.extend(f"candidate {i} got no branch" for i in range(len(branches), len(tries)))
        for outcome in outcomes:
            if outcome.error is not None:
                continue
            if score is None:
                outcome.score = float(outcome.exit_code == 0)
            elif outcome.exit_code == 0 or not require_success:
                outcome.score = float(score(outcome))
        found.winner_outcome = pick(outcomes, select, require_success)
        if found.winner_outcome is not None:
            found.winner = branches[found.winner_outcome.index]
            if promote_winner:
                await found.winner.promote()
    except BaseException:
        await _reap(found, branches)
        raise
    losers = [b for b in branches if b is not found.winner]
    if cleanup_losers or found.winner is None:
        await _reap(found, losers)
    if found.winner is None:
        raise ExploreError(f"none of {len(tries)} candidates succeeded", exploration=found)
    return found


async def _attempt(branch: Any, index: int, candidate: Candidate, timeout_seconds: float, capture_files: bool) -> Outcome:
    outcome = Outcome(index=index, label=candidate.label or str(index), cmd=candidate.cmd, sandbox_id=branch.id)
    try:
        if capture_files:
            await branch.exec(f"touch {shlex.quote(MARKER)}")
        done = await branch.exec(candidate.cmd, timeout_seconds=candidate.timeout_seconds or timeout_seconds)
        outcome.exit_code, outcome.duration_ms = done.exit_code, done.duration_ms or 0.0
        outcome.stdout, outcome.stderr = done.stdout[-TAIL:], done.stderr[-TAIL:]
        if capture_files:
            outcome.files = (await branch.exec(FILES)).stdout.splitlines()
    except SandboxTimeout as error:
        outcome.error, outcome.stdout, outcome.stderr = str(error), error.stdout[-TAIL:], error.stderr[-TAIL:]
    except PandastackError as error:
        outcome.error = str(error)
    return outcome


async def _reap(found: Exploration, branches: List[Any]) -> None:
    async def end(branch: Any) -> None:
        try:
            await branch.kill()
            found.reaped.append(branch.id)
        except PandastackError as error:
            found.reap_failures[branch.id] = str(error)

    await side_by_side(4, end, branches)
