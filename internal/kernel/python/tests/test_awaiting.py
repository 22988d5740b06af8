"""Top-level `await`: a cell that is broken off has ended when its end is told, and the user's tasks go on."""

from __future__ import annotations

import pytest

# The interrupt comes while the loop waits, not in the code of the cell.
SETUP = """
import asyncio, os, signal
gate, seen = asyncio.Event(), []

def interrupt():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)

async def passing():
    await gate.wait()
    seen.append('went on')
    print('went on')

async def spinning():
    os.kill(os.getpid(), signal.SIGINT)
    while True: pass

class Entered:
    async def __aenter__(self): pass
    async def __aexit__(self, kind, *_):
        await asyncio.sleep(0)
        print('left by', kind.__name__)
"""

GO_ON = "gate.set()\nfor _ in range(10): await asyncio.sleep(0)\nseen"


@pytest.fixture
def awaiting(context):
    assert context.run(SETUP).ok
    return context


@pytest.mark.parametrize(
    "code",
    [
        "interrupt()\nawait passing()\n'value'",
        "interrupt()\nawait asyncio.gather(passing(), passing())\n'value'",
        "await asyncio.gather(spinning(), passing())\nprint('went on')\n'value'",
        "async def leave(): raise SystemExit(3)\nasyncio.ensure_future(leave())\nawait passing()",
    ],
)
def test_what_was_broken_off_does_not_go_on_in_the_next_cell(awaiting, code):
    ran = awaiting.run(code)
    assert ran.end["error_name"] in ("KeyboardInterrupt", "SystemExit"), ran.end
    assert "CancelledError" not in ran.end["traceback"] and ran.stdout == "" and not ran.results
    assert awaiting.run(GO_ON).transcript == "result:[]"


def test_it_cleans_up_before_its_end(awaiting):
    ran = awaiting.run("interrupt()\nasync with Entered():\n    try:\n        await gate.wait()\n    finally:\n        await asyncio.sleep(0); print('finally')")
    assert ran.transcript == "stdout:finally\nleft by CancelledError", ran
    assert ran.end["error_name"] == "KeyboardInterrupt" and "CancelledError" not in ran.end["traceback"]


def test_an_interrupt_while_it_cleans_up_cancels_that(awaiting):
    ran = awaiting.run("interrupt()\ntry:\n    await gate.wait()\nfinally:\n    interrupt()\n    try:\n        await gate.wait()\n    except BaseException as error:\n        print(type(error).__name__)")
    assert ran.stdout == "CancelledError\n" and ran.end["error_name"] == "KeyboardInterrupt", ran
    assert awaiting.run(GO_ON).transcript == "result:[]"


@pytest.mark.parametrize("refused", ["asyncio.CancelledError", "BaseException"])
def test_one_that_refuses_to_end_is_left(awaiting, refused):
    awaiting.run(f"async def refusing():\n    while not gate.is_set():\n        try: await gate.wait()\n        except {refused}: pass\n    print('went on')")
    ran = awaiting.run("other = asyncio.create_task(passing())\ninterrupt()\nawait refusing()\nprint('went on')\n'value'")
    assert ran.transcript == "" and ran.end["error_name"] == "KeyboardInterrupt", ran
    assert awaiting.run(GO_ON).transcript == "stdout:went on result:['went on']", "the other task alone goes on"


def test_other_tasks_go_on(awaiting):
    ran = awaiting.run("other = asyncio.create_task(passing())\nawait asyncio.sleep(0)\ninterrupt()\nawait asyncio.sleep(1000)")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert awaiting.run("gate.set()\nawait other\nseen").text == "['went on']"


def test_a_loop_that_never_waits_is_interrupted(awaiting):
    ran = awaiting.run_interrupted("print('go', flush=True)\nwhile True: await asyncio.sleep(0)", "go")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert awaiting.run("await asyncio.sleep(0)\n2").text == "2"


def test_one_that_is_left_does_not_stop_the_loop_for_others(awaiting):
    awaiting.run("await asyncio.sleep(0)\nloop = asyncio.get_running_loop()\nasync def refusing():\n    while not gate.is_set():\n        try: await gate.wait()\n        except BaseException: pass")
    assert awaiting.run("interrupt()\nawait refusing()").end["error_name"] == "KeyboardInterrupt"
    assert awaiting.run("gate.set()\nloop.run_until_complete(asyncio.sleep(0.05, 'slept'))").text == "'slept'"


def test_the_cell_is_the_main_task_and_can_be_looked_at(awaiting):
    code = "import inspect\ntask = asyncio.current_task()\ninspect.getcoroutinestate(task.get_coro()), '_run_until_complete_cb' in repr(task)"
    ran = awaiting.run(code + "\nawait asyncio.sleep(0)\n_ = None\n" + code.splitlines()[-1])
    assert ran.text == "('CORO_RUNNING', True)", ran.end
