"""Output: in order, whole, and alive after whatever a cell did to it."""

from __future__ import annotations

import os
import select
import time

import agent
import pytest


def test_two_streams_in_order(context):
    ran = context.run(
        "import sys\nfor i in range(3):\n    print('o', i)\n    print('e', i, file=sys.stderr)\nprint('end', end='')"
    )
    assert ran.transcript == "stdout:o 0 stderr:e 0 stdout:o 1 stderr:e 1 stdout:o 2 stderr:e 2 stdout:end"


def test_partial_lines_keep_their_place(context):
    ran = context.run("import sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)\nprint('c', end='')\ndisplay(1)\nprint('d', end='')")
    assert ran.transcript == "stdout:a stderr:b stdout:c result:1 stdout:d"


def test_children_and_c_code_in_order(context):
    ran = context.run(
        "import subprocess, os, ctypes\n"
        "print('python', end=' ')\n"
        "subprocess.run('echo child', shell=True)\n"
        "print('again')\n"
        "os.system('echo system')\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.printf(b'from c ')\n"
        "print('back')\n"
        "os.write(1, b'raw\\n')\n"
        "libc.printf(b'no newline')"
    )
    assert ran.stdout == "python child\nagain\nsystem\nfrom c back\nraw\nno newline"


def test_child_after_a_result_comes_after_it(context):
    context.start("import os\ndisplay(1)\nos.system('echo child')\ndisplay(2)")
    # An agent that looks only once the child has written, or once it is asked: it must be asked first.
    select.select([context.sync, context.out], [], [])
    ran = context.finish()
    assert ran.transcript == "result:1 stdout:child result:2"


def test_output_streams_while_the_cell_runs(context):
    context.start("print('first')\nimport time\nwhile not __import__('os').path.exists('/tmp/go-on-%d' % __import__('os').getpid()): time.sleep(0.01)\nprint('second')")
    for event in context.events():
        if event.kind == "stdout":
            if event.text.startswith("first"):
                open(f"/tmp/go-on-{context.pid}", "w").close()  # the cell cannot end before this was seen
    os.unlink(f"/tmp/go-on-{context.pid}")


def test_everything_arrives_before_the_end(context):
    ran = context.run("import sys\nfor i in range(20000):\n    print('x' * 50)\nsys.stderr.write('tail')")
    assert len(ran.stdout) == 20000 * 51 and ran.stderr == "tail" and ran.events[-1].kind == "end"


def test_non_ascii_everywhere(context):
    ran = context.run("import sys\nprint('中文 😀 é', '\\ud83d lone')\nprint('ошибка', file=sys.stderr)\nsys.stdout.buffer.write('ж'.encode())")
    assert ran.ok and ran.stdout == "中文 😀 é \\ud83d lone\nж" and ran.stderr == "ошибка\n"
    ran = context.run("raise ValueError('中文 \\ud800')")
    assert ran.end["error_value"] == "中文 \ufffd"


@pytest.mark.parametrize(
    "damage",
    [
        "import os; os.close(1)",
        "import os; os.close(1); os.close(2); os.close(0)",
        "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys, io; sys.stdout = io.StringIO()",
        "import sys; sys.stdout = None; sys.stderr = None",
        "import sys; del sys.stdout",
        "import sys; sys.stdout.detach()",
        "import os; os.set_blocking(1, False)",
        "import os; os.closerange(3, 500)",
        "import os; os.dup2(1, 2)",
    ],
)
def test_the_next_cell_can_print(context, damage):
    ran = context.run(damage)
    assert ran.ok, ran.end
    ran = context.run("import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.system('echo child')\n1")
    assert (ran.stdout, ran.stderr, ran.text) == ("out\nchild\n", "err\n", "1")


def test_os_exit_keeps_what_was_written(context, zygote):
    with pytest.raises(agent.Died) as died:
        context.run("print('before')\nimport os; os._exit(7)")
    assert died.value.ran.stdout == "before\n"
    assert zygote.exited(context.pid)["code"] == 7


def test_a_crash_in_c_says_where(context, zygote):
    with pytest.raises(agent.Died) as died:
        context.run("print('before')\nimport ctypes\nctypes.string_at(0)")
    ran = died.value.ran
    assert ran.stdout == "before\n"
    assert "Segmentation fault" in ran.stderr and "Cell In[1]" in ran.stderr
    assert zygote.exited(context.pid)["signal"] == 11


def test_threads_print(context):
    ran = context.run(
        "import threading, sys\n"
        "def work(n):\n"
        "    for i in range(50):\n"
        "        (sys.stdout if i % 2 else sys.stderr).write(f'{n}.{i}\\n')\n"
        "ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts];"
    )
    lines = (ran.stdout + ran.stderr).split()
    assert sorted(lines) == sorted(f"{n}.{i}" for n in range(4) for i in range(50))


def test_a_thread_that_prints_between_cells_is_heard(context):
    context.run("import threading\ngo = threading.Event()\ndef late():\n    go.wait(); print('late')\nthreading.Thread(target=late).start()")
    ran = context.run("go.set()\nimport time\nwhile threading.active_count() > 1: time.sleep(0.01)")
    assert ran.stdout == "late\n"


def test_a_forked_child_does_not_touch_the_protocol(context):
    ran = context.run(
        "import os, sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print('child out'); print('child err', file=sys.stderr); display('shown')\n"
        "else:\n"
        "    print('parent', os.waitpid(pid, 0)[1])\n"
        "'only once' if pid else 'never'"
    )
    assert ran.stdout.splitlines() == ["child out", "'shown'", "'never'", "parent 0"]
    assert ran.stderr == "child err\n"
    assert ran.text == "'only once'" and len(ran.results) == 1
    assert context.run("1").text == "1"


def test_a_forked_child_that_raises_ends_with_status_1(context):
    ran = context.run("import os\npid = os.fork()\nif pid == 0: raise KeyError('in child')\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
    assert ran.text == "1" and "KeyError: 'in child'" in ran.stderr


def test_multiprocessing(context):
    ran = context.run(
        "import multiprocessing as mp\n"
        "def square(x):\n    print('in', x); return x * x\n"
        "with mp.get_context('fork').Pool(2) as pool:\n    found = pool.map(square, range(4))\nfound"
    )
    assert ran.text == "[0, 1, 4, 9]" and sorted(ran.stdout.split()) == sorted("in 0 in 1 in 2 in 3".split())
    assert context.run("1").text == "1"


def test_a_child_left_behind_does_not_keep_the_line_open(zygote):
    context = zygote.context()
    context.run("import os\npid = os.fork()\nif pid == 0:\n    import time; time.sleep(1000)\npid")
    began = time.monotonic()
    os.kill(context.pid, 9)
    while context.control.recv(1):  # hangs if the child holds the other end
        pass
    assert time.monotonic() - began < agent.PATIENCE
    os.killpg(context.pid, 9)
    zygote.exited(context.pid)


def test_carriage_returns_pass(context):
    assert context.run("print('10%', end='\\r'); print('20%', end='\\r')").stdout == "10%\r20%\r"


def test_a_flood_is_gathered_and_keeps_its_order(context):
    ran = context.run(
        "import os, sys, subprocess\n"
        "for i in range(3000): print('line', i)\n"
        "os.write(1, b'raw\\n')\n"
        "for i in range(3000): print('e', i, file=sys.stderr)\n"
        "subprocess.run('echo child', shell=True)\n"
        "for i in range(3000): print('more', i)\n"
        "display(1)\n"
        "for i in range(100): print('last', i)"
    )
    lines = [f"line {i}" for i in range(3000)] + ["raw", "child"] + [f"more {i}" for i in range(3000)] + [f"last {i}" for i in range(100)]
    assert ran.stdout.splitlines() == lines
    assert [part.split(":")[0] for part in ran.transcript.split(" ") if part.startswith(("stdout:", "stderr:", "result:"))] == ["stdout", "stderr", "stdout", "result", "stdout"]
    chunks = sum(event.kind in ("stdout", "stderr") for event in ran.events)
    assert chunks < 2000  # of 9,100 lines


def test_slow_lines_are_not_gathered(context):
    context.start("import time\nfor i in range(200): print(i)\ntime.sleep(0.3)\nprint('alone')\nwhile not __import__('os').path.exists(f'/tmp/go-{__import__(\"os\").getpid()}'): pass")
    for event in context.events():
        if "alone" in event.text:
            open(f"/tmp/go-{context.pid}", "w").close()  # the cell cannot end before this was seen
    os.unlink(f"/tmp/go-{context.pid}")
