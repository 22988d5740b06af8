"""Nothing stays behind."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from daemon import Daemon
from hostview import view
from pandastack import Sandbox


@pytest.mark.slow
def test_a_hundred_lives_leave_nothing() -> None:
    # No pools, so that what is there afterwards was left behind.
    d = Daemon(pool_ready=0, pool_prepared=0).start()
    try:
        def one(i: int) -> None:
            sb = Sandbox.create(template="code-interpreter", ttl_seconds=120, api_url=d.url, api_key=d.key)
            assert sb.run_code(f"{i} * 2").text == str(i * 2)
            sb.kill()

        one(0)
        before = view(d.data)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, range(1, 101)))
        deadline = time.monotonic() + 30
        while (after := view(d.data)) != before and time.monotonic() < deadline:
            time.sleep(0.2)
        left = {k: sorted(after[k] - before[k])[:10] for k in after if after[k] - before[k]}
        assert left == {}
    finally:
        d.stop()
        d.remove()


def test_a_daemon_that_ends_after_its_sandboxes_leaves_nothing() -> None:
    d = Daemon().start()
    sb = Sandbox.create(template="code-interpreter", api_url=d.url, api_key=d.key)
    sb.kill()
    assert d.stop() == 0
    left = view(d.data)
    assert left["processes"] == set() and left["mounts"] == set() and left["sockets"] == set()
    d.remove()
