from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from daemon import Daemon  # noqa: E402

import pandastack  # noqa: E402


# The files that take longest, the longest first: begun last, one would be waited for alone.
LONG = (
    "test_api_fuzz.py", "test_docs.py", "test_analyst.py", "test_agent.py", "test_snapshots.py", "test_programme.py", "test_package.py",
    "test_tools.py", "test_damage.py", "test_cells_that_misbehave.py", "test_published_clients.py", "test_network_clients.py", "test_files.py",
    "test_soak.py", "test_mcp.py", "test_codeact_bench.py", "test_leftovers.py", "test_lives.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """One daemon for all tests that do not hurt it."""
    d = Daemon().start()
    yield d
    code = d.stop()
    tail = d.tail()
    d.remove()
    assert code == 0, f"the daemon did not end cleanly:\n{tail}"


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """A daemon that this test may kill."""
    d = Daemon(pool_ready=1, pool_prepared=1).start()
    yield d
    # What is still running ends with a daemon that is asked to stop and then looks after its leftovers.
    if d.process.poll() is not None:
        d.start()
    for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
        sb.kill()
    d.stop()
    d.remove()


@pytest.fixture
def sandbox(daemon: Daemon) -> Iterator[pandastack.Sandbox]:
    sb = pandastack.Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=daemon.url, api_key=daemon.key)
    yield sb
    sb.kill()


@pytest.fixture(scope="module")
def shared_sandbox(daemon: Daemon) -> Iterator[pandastack.Sandbox]:
    """A sandbox for the tests of one file that leave it usable."""
    sb = pandastack.Sandbox.create(template="code-interpreter", ttl_seconds=900, api_url=daemon.url, api_key=daemon.key)
    yield sb
    sb.kill()


@pytest.fixture
def ctx(shared_sandbox: pandastack.Sandbox) -> Iterator[pandastack.CodeContext]:
    context = shared_sandbox.create_code_context()
    yield context
    context.close()
