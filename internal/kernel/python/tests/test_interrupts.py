"""SIGINT: stops the cell, is told as KeyboardInterrupt, keeps the state, and does nothing between cells."""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import termios
import threading

import agent
import pytest


@pytest.mark.parametrize(
    "code",
    [
        "print('go', flush=True)\nwhile True: pass",
        "print('go', flush=True)\nimport time; time.sleep(1000)",
        "print('go', flush=True)\nimport threading; threading.Event().wait()",
        "import subprocess\nprint('go', flush=True)\nsubprocess.run('sleep 1000', shell=True)",
        "!echo go; sleep 1000",
        "%%bash\necho go\nsleep 1000",
        "import asyncio\nprint('go', flush=True)\nawait asyncio.sleep(1000)",
        "import asyncio\nasync def f():\n    print('go', flush=True); await asyncio.sleep(1000)\nasyncio.run(f())",
        "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nprint('go', flush=True)\nwhile True: pass",
        "while True: print('go')",
        "while True: display('go'); print('go')",
        "import sys\nwhile True: print('go'); print('stop', file=sys.stderr)",
        "%%time\nprint('go', flush=True)\nwhile True: pass",
    ],
)
def test_stops_and_keeps_state(context, code):
    context.run("kept = 'here'")
    ran = context.run_interrupted(code, "go")
    assert ran.end["error_name"] in ("KeyboardInterrupt", "CalledProcessError"), ran.end
    assert "pandastack" not in ran.end["traceback"]
    assert context.run("kept").text == "'here'"
    assert context.run("print('out')\n1").transcript == "stdout:out result:1"


def test_one_that_comes_after_the_last_look_is_not_lost(context):
    context.run("import os, time\ndef threads(): return len(os.listdir('/proc/self/task'))\nbefore = threads()")
    ran = context.run(
        "import signal\n"
        "from pandastack_kernel import interrupts\n"
        "@interrupts.whole\n"
        "def ours():\n"
        "    interrupts.raise_pending()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return 'whole'\n"
        "if said := ours(): time.sleep(1000)"  # one statement: before the next it is looked again
    )
    assert ran.end["error_name"] == "KeyboardInterrupt", ran.end
    assert context.run("end = time.monotonic() + 10\nwhile threads() > before and time.monotonic() < end: time.sleep(0.01)\nsaid, threads() == before").text == "('whole', True)"


KEPT_BACK = """
import os, signal, time
from pandastack_kernel import interrupts
got = []
@interrupts.whole
def ours(then):
    interrupts.raise_pending()
    os.kill(os.getpid(), signal.SIGINT)
    then()
"""


def test_one_that_is_sent_again_reaches_a_handler_of_the_users_once(context):
    context.run(KEPT_BACK)
    ran = context.run("if True: ours(lambda: signal.signal(signal.SIGINT, lambda *_: got.append(1))); time.sleep(0.5)\nlen(got)")
    assert ran.transcript == "result:1", ran.end


def test_one_that_is_raised_while_it_is_sent_again_is_raised_once(context):
    context.run(
        KEPT_BACK + "send, looked, sent = signal.pthread_kill, [], []\n"
        "def late(*to):\n"
        "    signal.pthread_kill = send\n"
        "    looked.append(1)\n"
        "    while interrupts._pending: time.sleep(0.001)\n"
        "    send(*to)\n"
        "    sent.append(1)\n"
        "def wait(for_it):\n"
        "    while not for_it: time.sleep(0.001)\n"
        "@interrupts.whole\n"
        "def looking():\n"
        "    ours(lambda: wait(looked))\n"
        "    interrupts.raise_pending()\n"
        "signal.pthread_kill = late"
    )
    ran = context.run("for work in (looking, lambda: wait(sent)):\n    try: work()\n    except KeyboardInterrupt: got.append(work)\nlen(got)")
    assert ran.text == "1", ran.end
    assert context.run_interrupted("print('go', flush=True)\nwhile True: pass", "go").end["error_name"] == "KeyboardInterrupt"


def test_one_that_is_kept_back_at_a_fork_is_the_parents(context):
    context.run(
        KEPT_BACK + "def tried(work):\n"
        "    try: work()\n"
        "    except KeyboardInterrupt: return 'raised'\n"
        "    return 'not raised'\n"
        "def again():\n"
        "    ours(lambda: None)\n"
        "    time.sleep(1000)\n"
        "def child():\n"
        "    interrupts.start_new_thread = start\n"
        "    signal.alarm(20)\n"
        "    os.write(writing, ' '.join(tried(work) for work in (lambda: print('child'), again, again)).encode())\n"
        "    os._exit(0)\n"
        "reading, writing = os.pipe()\n"
        "start, interrupts.start_new_thread = interrupts.start_new_thread, lambda *_: None"  # it has not come to send yet
    )
    assert context.run("if ours(lambda: None) or not os.fork(): child()\ntime.sleep(1000)").end["error_name"] == "KeyboardInterrupt"
    said = context.run("interrupts.start_new_thread = start; os.close(writing); os.read(reading, 100).decode()")
    assert said.text == "'not raised raised raised'"


@pytest.mark.parametrize("error", ["RuntimeError", "MemoryError"])
def test_without_room_for_a_thread_the_next_look_finds_it(context, error):
    context.run(KEPT_BACK + f"def full(*_): raise {error}\nstart, interrupts.start_new_thread = interrupts.start_new_thread, full")
    ran = context.run("if True: ours(lambda: got.append('whole'))\ntime.sleep(1000)")
    assert ran.end["error_name"] == "KeyboardInterrupt", ran.end
    assert context.run("interrupts.start_new_thread = start; got").text == "['whole']"


def test_shows_where_it_was(context):
    ran = context.run_interrupted("def loop():\n    print('go', flush=True)\n    while True:\n        pass\nloop()", "go")
    assert "in loop" in ran.end["traceback"] and ran.end["traceback"].endswith("KeyboardInterrupt")


SLOW = """
class Slow(Exception):
    def __str__(self):
        print('go', flush=True)
        while True:
            pass

    __repr__ = __str__

slow = Slow()
"""


@pytest.mark.parametrize("raising", ["raise slow", "raise KeyError(slow)", "raise ValueError(1) from slow", "raise ExceptionGroup('of them', [slow])"])
def test_an_exception_that_is_long_in_saying_what_it_is_can_be_interrupted(context, raising):
    context.run(SLOW)
    ran = context.run_interrupted(raising, "go")
    assert "was interrupted" in ran.end["error_value"], "it was its time that ran out"
    assert ran.stdout.count("go") == 1, "once it was interrupted it was asked again"
    assert context.run("type(slow).__name__").text == "'Slow'"


def test_what_was_just_written_is_not_written_again(context):
    ran = context.run(
        "import os, signal\n"
        "from pandastack_kernel import streams\n"
        "write = streams._write\n"
        "def interrupted(fd, data):\n"
        "    streams._write = write\n"
        "    written = write(fd, data)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return written\n"
        "streams._write = interrupted\n"
        "print('go')\n"
        "while True: pass"
    )
    assert ran.end["error_name"] == "KeyboardInterrupt" and ran.stdout == "go\n"


def test_between_cells_it_is_ignored(context):
    for _ in range(5):
        os.killpg(context.pid, signal.SIGINT)
        assert context.run("1").text == "1"


@pytest.mark.parametrize("first", ["run", "interrupt"])
def test_one_that_comes_before_the_cell_has_begun_is_not_lost(context, first):
    context.run("began = False")
    run = {"op": "run", "id": "early", "code": "began = True\nwhile True: pass"}
    interrupt = {"op": "interrupt", "id": "early"}
    context.send_all([run, interrupt] if first == "run" else [interrupt, run])
    assert context.finish().end["error_name"] == "KeyboardInterrupt"
    assert context.run("began").text == "False"


def test_one_for_a_cell_that_has_ended_stops_no_other(context):
    run = context.start("1")
    context.finish()
    context.interrupt(run)
    assert context.run("import time; time.sleep(0.01); 2").text == "2"


def test_a_cell_that_ignored_it_does_not_protect_the_next(context):
    context.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert context.run_interrupted("print('go', flush=True)\nwhile True: pass", "go").end["error_name"] == "KeyboardInterrupt"
    context.run("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})")
    assert context.run_interrupted("print('go', flush=True)\nwhile True: pass", "go").end["error_name"] == "KeyboardInterrupt"


def test_a_cell_that_catches_it_goes_on(context):
    ran = context.run_interrupted("try:\n    print('go', flush=True)\n    while True: pass\nexcept KeyboardInterrupt:\n    print('caught')\n5", "go")
    assert ran.ok and ran.text == "5" and "caught" in ran.stdout


IGNORED = """
import gc, weakref

def busy(*_):
    print('go', flush=True)
    while True:
        pass

class Thing:
    pass
"""


@pytest.mark.parametrize(
    "where",
    [
        "Thing.__del__ = busy\nThing()",
        "thing = Thing()\nreference = weakref.ref(thing, busy)\ndel thing",
        "gc.callbacks.append(busy)\ntry:\n    gc.collect()\nfinally:\n    gc.callbacks.remove(busy)",
    ],
)
def test_where_python_ignores_it_it_comes_again(context, where):
    ran = context.run_interrupted(f"{IGNORED}{where}\nwhile True: pass", "go")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert ran.stderr == "", "there is nothing to be told of it"
    assert context.run("'alive'").text == "'alive'"


AGAIN_AND_AGAIN = """
import ctypes, threading

most = 0

def short(*_):
    global most
    most = max(most, threading.active_count())
    for _ in range(20_000):
        pass
    return 0

class Thing:
    __del__ = short

callback = ctypes.CFUNCTYPE(ctypes.c_int)(short)
print('go', flush=True)
"""


@pytest.mark.parametrize("where", ["Thing()", "callback()"])
def test_where_python_ignores_it_a_thousand_times_one_thread_sends_it(context, where):
    before = int(context.run("import threading; threading.active_count()").text)
    ran = context.run_interrupted(f"{AGAIN_AND_AGAIN}while True:\n    {where}", "go")
    assert ran.end["error_name"] == "KeyboardInterrupt" and ran.stderr == ""
    assert int(context.run("most").text) <= before + 1


def test_many_at_every_moment_break_nothing(context):
    for _ in range(30):
        ran = context.run_interrupted("for i in range(200): print('go'); display(i)\n'end'", "go", times=3)
        assert ran.end["status"] == "ok" or ran.end["error_name"] == "KeyboardInterrupt", ran.end
    assert context.run("print('a')\n2").transcript == "stdout:a result:2"


def test_a_hail_of_them_breaks_nothing(context):
    """They come all the time, so also between the user's code and the kernel's, in the midst of one another, and at the set-up of time limits."""
    over = threading.Event()

    def hail() -> None:
        while not over.wait(0.0002):
            os.killpg(context.pid, signal.SIGINT)

    context.run("class Shown:\n    def __repr__(self): return 'shown'")
    hailing = threading.Thread(target=hail)
    hailing.start()
    try:
        for _ in range(200):
            for code in ("sum(range(10_000))", "print('out')\nShown()", "display(Shown())", "1/0", "%time 1", "!true"):
                ran = context.run(code)
                assert ran.end["status"] == "ok" or ran.end["error_name"] in ("KeyboardInterrupt", "ZeroDivisionError"), ran.end["traceback"]
    finally:
        over.set()
        hailing.join()
    assert context.run("print('a')\nShown()").transcript == "stdout:a result:shown"
    assert context.run("import signal; signal.getitimer(signal.ITIMER_REAL)").text == "(0.0, 0.0)"


def test_a_signal_of_the_users_between_cells_does_not_end_the_kernel(context):
    context.run(
        "import signal\ndef late(*_): raise TimeoutError('late')\n"
        "signal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\nkept = 1"
    )
    select.select([context.sync, context.err], [], [], agent.PATIENCE)
    ran = context.run("kept")
    assert ran.text == "1" and "TimeoutError: late" in ran.stderr, ran


def test_a_large_frame_is_not_cut_in_two(context):
    context.start("while True: display({'text/plain': 'y' * 3_000_000}, raw=True)")
    waiting = array.array("i", [0])
    while waiting[0] < 50_000:  # the frame is larger than the socket's buffer: its sender is in the middle of it
        fcntl.ioctl(context.control, termios.FIONREAD, waiting)
    os.killpg(context.pid, signal.SIGINT)
    ran = context.finish()
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert ran.data and all(len(data["text/plain"]) > 1_000_000 for data in ran.data)
    assert context.run("1").text == "1"


def test_children_of_the_cell_are_stopped_too(context):
    ran = context.run_interrupted("!echo go; exec sleep 1000", "go")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert context.run("!ps -eo args 2>/dev/null | grep -c '[s]leep 1000'\n0").ok
