"""The short form of `make lives`. PANDASTACK_LIVES_SEED tries a seed again, or another one."""

from __future__ import annotations

import os

from lives import Lives

SEED = int(os.environ.get("PANDASTACK_LIVES_SEED", "7"))


def test_sandboxes_hold_what_was_done_to_them() -> None:
    print("seed", SEED)
    lives = Lives(SEED).run(seconds=120, steps=70)
    print(lives.report())
    assert not lives.failures
    assert lives.kills and lives.counts["look"]
