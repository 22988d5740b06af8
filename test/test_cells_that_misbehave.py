"""Cells that loop, allocate, crash, flood or lie: each ends with its kind, keeps what it had printed,
and leaves its neighbours alone."""

from __future__ import annotations

import pytest
from daemon import Daemon
from pandastack import CodeContext, Sandbox


def test_endless_loop_ends_at_its_deadline_and_keeps_the_state(ctx: CodeContext) -> None:
    ctx.run_code("kept = 41")
    ex = ctx.run_code("print('before', flush=True)\nwhile True: pass", timeout_seconds=1)
    assert ex.end == "timeout"
    assert ex.state_survived is True
    assert ex.stdout == "before\n"
    assert "ran longer than its 1s" in ex.error
    after = ctx.run_code("kept + 1")
    assert (after.text, after.stdout) == ("42", ""), "the next cell gets its own output, not the previous one's"


def test_a_cell_that_swallows_interrupts_is_killed_and_says_so(ctx: CodeContext) -> None:
    ctx.run_code("lost = 1")
    ex = ctx.run_code(
        "import time\nprint('in')\nwhile True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass",
        timeout_seconds=1)
    assert ex.end == "timeout"
    assert ex.state_survived is False
    assert ex.stdout == "in\n"
    after = ctx.run_code("lost")
    assert after.error_name == "NameError", "a killed interpreter must not be said to have kept its variables"


def test_blocked_sigint_does_not_outlive_the_deadline(ctx: CodeContext) -> None:
    ex = ctx.run_code("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)", timeout_seconds=1)
    assert ex.end == "timeout"
    assert ctx.run_code("1+1").text == "2"


def test_a_cell_that_awaits_does_not_outlive_its_deadline(ctx: CodeContext) -> None:
    ctx.run_code("import asyncio\nkept, woken = 41, asyncio.Event()")
    refusing = "while not woken.is_set():\n    try: await woken.wait()\n    except: pass\n"
    for waiting in ("await woken.wait()\n", refusing):
        ex = ctx.run_code(waiting + "print('late')\n'value'", timeout_seconds=1)
        assert (ex.end, ex.state_survived, ex.stdout, ex.results) == ("timeout", True, "", [])
    after = ctx.run_code("woken.set()\nfor _ in range(10): await asyncio.sleep(0)\nkept + 1")
    assert (after.text, after.stdout) == ("42", ""), "the next cell gets its own output, not what goes on of the previous one"


@pytest.mark.parametrize("code, words", [
    ("import os; print('x', flush=True); os._exit(3)", "3"),
    ("print('x', flush=True); import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ("print('x', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ("print('x', flush=True); import os; os.abort()", "SIGABRT"),
])
def test_a_dead_interpreter_is_replaced(ctx: CodeContext, code: str, words: str) -> None:
    ctx.run_code("gone = 1")
    ex = ctx.run_code(code)
    assert ex.end == "kernel_died"
    assert ex.state_survived is False
    assert ex.stdout == "x\n"
    assert words in ex.error
    assert ctx.run_code("'gone' in globals()").text == "False"


def test_python_sees_a_memory_error_first(ctx: CodeContext) -> None:
    ctx.run_code("kept = 'k'")
    ex = ctx.run_code("x = bytearray(64 << 30)")
    assert (ex.end, ex.error_name) == ("error", "MemoryError")
    assert "Cell In" in ex.error
    assert ctx.run_code("kept").text == "'k'"


def test_the_larger_of_two_contexts_dies_of_memory_the_other_lives(sandbox: Sandbox) -> None:
    small, large = sandbox.create_code_context(), sandbox.create_code_context()
    mb = sandbox.info.memory_mb
    small.run_code(f"import numpy as np\na = np.ones(({mb} * 30 // 100) << 17)\nkept = 'here'")
    ex = large.run_code(
        "import numpy as np\nparts = []\nprint('growing', flush=True)\n"
        f"for _ in range({mb}):\n    parts.append(np.ones(1 << 17))\nprint('done')", timeout_seconds=60)
    assert ex.end == "oom" or ex.error_name == "MemoryError", (ex.end, ex.error)
    assert ex.stdout.startswith("growing")
    assert small.run_code("kept, float(a.sum()) > 0").text == "('here', True)"
    assert large.run_code("1+1").text == "2"


def test_a_child_process_that_eats_all_memory_is_the_one_that_dies(sandbox: Sandbox) -> None:
    ctx = sandbox.create_code_context()
    ctx.run_code("kept = 7")
    ex = ctx.run_code(
        "import subprocess, sys\n"
        "p = subprocess.run([sys.executable, '-c', 'x = []\\nwhile True: x.append(bytearray(8 << 20))'], capture_output=True)\n"
        "p.returncode", timeout_seconds=60)
    assert ex.end in ("ok", "oom"), ex.error
    assert sandbox.create_code_context().run_code("1+1").text == "2"


@pytest.mark.slow
def test_a_fork_bomb_stays_in_its_sandbox(sandbox: Sandbox, shared_sandbox: Sandbox) -> None:
    out = sandbox.exec(["/bin/dash", "-c", "i=0; while [ $i -lt 20000 ]; do sleep 60 & i=$((i+1)); done"], timeout_seconds=60)
    assert "Cannot fork" in out.stderr, "root inside can't lift the limit"
    assert sandbox.filesystem.exists("/workspace"), "the agent answers while the bomb's children live"
    assert shared_sandbox.run_code("1+1").text == "2"


@pytest.mark.slow
def test_a_bomb_of_forked_interpreters_ends_with_its_cell(sandbox: Sandbox, shared_sandbox: Sandbox) -> None:
    other = sandbox.create_code_context()
    other.run_code("kept = 1")
    ex = sandbox.run_code(
        "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            time.sleep(60); os._exit(0)\n        n += 1\n"
        "except BlockingIOError as e:\n    print('stopped', e.errno)", timeout_seconds=60)
    assert ex.end == "oom" or ex.stdout.startswith("stopped 11"), (ex.end, ex.error)
    assert other.run_code("kept").text == "1"
    assert shared_sandbox.run_code("1+1").text == "2"


def test_a_full_disk_is_an_error_in_python_and_nothing_else(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    sandbox = Sandbox.create(template="code-interpreter", disk_mb=256, ttl_seconds=600, api_url=daemon.url, api_key=daemon.key)
    ex = sandbox.run_code(
        "import os\nwith open('/workspace/big', 'wb') as f:\n    for _ in range(1 << 20):\n        f.write(bytes(64 << 20))", timeout_seconds=180)
    assert (ex.end, ex.error_name) == ("error", "OSError"), ex.error
    assert "No space left" in ex.error
    ex = sandbox.run_code("os.remove('/workspace/big'); print('still here')")
    assert ex.stdout == "still here\n"
    assert shared_sandbox.run_code("1+1").text == "2"
    sandbox.kill()


def test_a_gigabyte_of_output_is_cut_in_the_middle_and_counted(ctx: CodeContext) -> None:
    ex = ctx.run_code(
        "import sys\nprint('FIRST')\nline = 'x' * 1023 + '\\n'\nfor _ in range(1024): sys.stdout.write(line * 1024)\nprint('LAST')",
        timeout_seconds=120)
    assert ex.end == "ok", ex.error
    assert ex.truncated
    assert ex.stdout.startswith("FIRST\n") and ex.stdout.endswith("LAST\n")
    assert len(ex.stdout) < 4 << 20
    assert "bytes" in ex.stdout, "the place of the cut says how much is missing"


def test_closed_descriptors_come_back(ctx: CodeContext) -> None:
    ctx.run_code("import os\nos.close(1)\nos.close(2)")
    ex = ctx.run_code("print('again')\nimport subprocess\nsubprocess.run('echo child', shell=True)\nNone")
    assert ex.stdout == "again\nchild\n"


def test_an_exception_whose_repr_raises(ctx: CodeContext) -> None:
    ex = ctx.run_code("class E(Exception):\n    def __str__(self): raise ValueError('no')\n    __repr__ = __str__\nraise E()")
    assert (ex.end, ex.error_name) == ("error", "E")
    assert "raise E()" in ex.error


def test_a_html_repr_that_raises_leaves_the_text(ctx: CodeContext) -> None:
    ex = ctx.run_code("class R:\n    def _repr_html_(self): raise ValueError('no')\n    def __repr__(self): return 'plain'\nR()")
    assert ex.text == "plain"
    assert ex.results[0].html is None


def test_a_html_repr_that_takes_for_ever_ends_at_the_deadline(ctx: CodeContext) -> None:
    ctx.run_code("kept = 3")
    ex = ctx.run_code("class R:\n    def _repr_html_(self):\n        while True: pass\nR()", timeout_seconds=3)
    assert ex.end in ("ok", "timeout")
    assert ctx.run_code("kept").text == "3"


def test_input_is_refused_with_words_at_once(ctx: CodeContext) -> None:
    ex = ctx.run_code("name = input('who? ')", timeout_seconds=20)
    assert ex.end == "error"
    assert "input" in ex.error
    assert ctx.run_code("1+1").text == "2"


def test_exit_does_not_end_the_kernel(ctx: CodeContext) -> None:
    ctx.run_code("kept = 5")
    ctx.run_code("import sys\nsys.exit(1)")
    assert ctx.run_code("kept").text == "5"


def test_interrupt_from_another_client(ctx: CodeContext, shared_sandbox: Sandbox) -> None:
    import threading
    ctx.run_code("kept = 9")
    got: list[object] = []
    t = threading.Thread(target=lambda: got.append(ctx.run_code("import time\nprint('go', flush=True)\ntime.sleep(600)", timeout_seconds=120)))
    t.start()
    other = shared_sandbox.context(ctx.id)
    while True:  # until the cell runs
        if ctx.info().state == "busy":
            break
    other.interrupt()
    t.join(30)
    ex = got[0]
    assert ex.end == "interrupted" and ex.state_survived is True
    assert other.run_code("kept").text == "9"
