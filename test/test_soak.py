"""The short form of `make soak`."""

from __future__ import annotations

import pytest
from soak import Soak


@pytest.mark.slow
def test_forty_cycles_and_two_kills_leave_nothing_and_nothing_grows() -> None:
    soak = Soak(parallel=8)
    report = soak.run(cycles=40, kill_every=15, steady=20, batches=2)
    assert report.kills == 2
    assert soak.problems() == [], report
