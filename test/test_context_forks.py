"""Copies of a code context: everything is in them, memory is shared, what cannot be carried is named."""

from __future__ import annotations

import base64
import time

import pytest

from pandastack import BadRequestError, NotFoundError, Sandbox


def used_mb(sandbox: Sandbox) -> float:
    """What the sandbox itself says is in use, pages shared by forks once."""
    lines = dict(line.split(":") for line in sandbox.filesystem.read_text("/proc/meminfo").splitlines())
    return (int(lines["MemTotal"].split()[0]) - int(lines["MemFree"].split()[0])) / 1024


def settled_mb(sandbox: Sandbox) -> float:
    """The same, when nothing is being prepared in the background any more: a spare context comes in the place of each that was taken."""
    readings: list[float] = []
    while len(readings) < 200:
        readings.append(used_mb(sandbox))
        if len(readings) >= 10 and max(readings[-10:]) - min(readings[-10:]) < 1:
            return readings[-1]
        time.sleep(0.05)
    raise AssertionError(f"memory in use does not settle: {readings[-10:]} MB")


def test_ten_copies_of_a_session_cost_little_until_they_compute(shared_sandbox):
    ctx = shared_sandbox.create_code_context()
    ctx.run_code("import numpy as np\na = np.ones(25_000_000)\nkept = {'total': float(a.sum())}")  # 200 MB
    ctx.fork().close()  # by the first fork the original comes to pages of its own, once
    before = settled_mb(shared_sandbox)
    copies = ctx.fork(count=10)
    each = (settled_mb(shared_sandbox) - before) / 10
    print(f"{each:.1f} MB each")
    assert len({copy.id for copy in copies}) == 10 and each <= 10
    answers = [copy.run_code(f"a[0] = {n}; (float(a.sum()), kept)").text for n, copy in enumerate(copies)]
    assert answers == [f"({25e6 - 1 + n}, {{'total': 25000000.0}})" for n in range(10)]
    assert ctx.run_code("a[0]").text == "np.float64(1.0)"
    assert {c.id for c in shared_sandbox.contexts()} >= {copy.id for copy in copies}
    for copy in [*copies, ctx]:
        copy.close()


def test_a_copy_is_a_context_like_any_other(shared_sandbox):
    with shared_sandbox.create_code_context() as ctx:
        ctx.run_code("import pandas as pd, matplotlib.pyplot as plt\ndf = pd.DataFrame({'a': [3, 1, 2]})")
        copy = ctx.fork()
        ex = copy.run_code("df.a.plot(); plt.show()\ndf.sort_values('a')")
        assert ex.results[0].html and base64.b64decode(ex.png).startswith(b"\x89PNG")
        assert copy.run_code("import time\ntime.sleep(100)", timeout_seconds=0.5).end == "timeout"
        assert copy.run_code("len(df)").text == "3"
        second = copy.fork()
        copy.restart()
        assert copy.run_code("df").error_name == "NameError"
        assert second.run_code("df.a.max()").text == "np.int64(3)"
        copy.close()
        copy.close()
        with pytest.raises(NotFoundError):
            copy.run_code("1")
        second.close()


def test_random_numbers_differ_between_copies(shared_sandbox):
    with shared_sandbox.create_code_context() as ctx:
        ctx.run_code("import random, ssl, uuid, numpy as np\nrandom.seed(1); np.random.seed(1); ssl.RAND_bytes(8)")
        copies = ctx.fork(4)
        draw = "random.random(), np.random.random(), ssl.RAND_bytes(8), uuid.uuid4()"
        assert len({copy.run_code(draw).text for copy in copies}) == 4
        for copy in copies:
            copy.close()


def test_what_a_copy_lacks_is_said(shared_sandbox):
    with shared_sandbox.create_code_context() as ctx:
        ctx.run_code("import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, name='poller').start()")
        copy = ctx.fork()
        assert len(copy.warnings) == 1 and "poller" in copy.warnings[0]
        assert copy.run_code("threading.active_count()").text == "1"
        ctx.run_code("stop.set()")
        copy.close()


def test_bad_counts_and_unknown_contexts(shared_sandbox):
    with shared_sandbox.create_code_context() as ctx:
        for count in (-1, 33):
            with pytest.raises((BadRequestError, ValueError)):
                ctx.fork(count)
    with pytest.raises(NotFoundError):
        ctx.fork()
