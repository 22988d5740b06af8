"""Forks of a context: everything is there, nothing is shared, what cannot be carried is named."""

from __future__ import annotations


import pytest
from conftest import needs


def test_copies_have_everything_and_share_nothing(context):
    context.run("import os\nos.chdir('/tmp'); os.environ['SET'] = 'yes'\nx = [1]\ndef f(): return x")
    copies, warnings = context.copies(3)
    assert warnings == []
    for number, copy in enumerate(copies):
        ran = copy.run(f"x.append({number}); f(), os.getcwd(), os.environ['SET'], len(In)")
        assert ran.text == f"([1, {number}], '/tmp', 'yes', 3)", ran
        assert ran.end["count"] == 2
    assert context.run("x").text == "[1]"
    for copy in copies:
        copy.leave()


def test_the_output_of_a_copy_is_its_own(context):
    (copy,), _ = context.copies()
    copy.start("import subprocess, sys\nprint('out'); print('err', file=sys.stderr)\nsubprocess.run('echo child', shell=True)\n1/0")
    ran = copy.finish()
    assert ran.stdout == "out\nchild\n" and ran.stderr == "err\n"
    assert ran.end["error_name"] == "ZeroDivisionError"
    assert context.run("print('mine')").transcript == "stdout:mine"
    copy.leave()


def test_a_copy_can_be_copied_and_outlives_the_original(zygote):
    context = zygote.context()
    context.run("x = 'here'")
    (copy,), _ = context.copies()
    (second,), _ = copy.copies()
    context.close()
    copy.leave()
    assert second.run("x").text == "'here'"
    second.leave()


def test_copies_differ_in_what_is_random_and_interrupts_reach_one(context):
    context.run("import random, numpy as np")
    (one, two), _ = context.copies(2)
    one.send({"op": "reseed", "entropy": "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="})
    assert one.run("random.random(), np.random.random()").text != two.run("random.random(), np.random.random()").text
    assert one.run_interrupted("print('go', flush=True)\nwhile True: pass", "go").end["error_name"] == "KeyboardInterrupt"
    assert two.run("1").text == "1"
    one.leave()
    two.leave()


def test_the_original_has_no_children_by_it(context):
    (copy,), _ = context.copies()
    ran = context.run("import os\ntry: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: print('none')")
    assert ran.stdout == "none\n"
    copy.leave()


def test_top_level_await_works_in_both(context):
    code = "import asyncio\nawait asyncio.sleep(0.01)\n5"
    assert context.run(code).text == "5"
    (copy,), warnings = context.copies()
    assert warnings == []
    assert copy.run(code).text == "5" and context.run(code).text == "5"
    copy.leave()


CARRIED = [
    ("import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, name='worker').start()", "stop.set()", "threads", "worker"),
    ("import subprocess\np = subprocess.Popen(['sleep', '1000'])", "p.kill(); p.wait();", "child processes", "sleep"),
    ("import socket\na, b = socket.socketpair()", "a.close(), b.close()", "connections", "descriptor"),
    ("import sqlite3\ndb = sqlite3.connect('/tmp/copies.db'); db.execute('create table if not exists t (x)'); db.commit()", "db.close()", "database", "copies.db"),
    ("f = open('/tmp/copies.txt', 'w')", "f.close()", "one position", "copies.txt"),
    ("import asyncio\nt = asyncio.ensure_future(asyncio.sleep(1000))\nawait asyncio.sleep(0)", "t.cancel(); await asyncio.sleep(0)", "asyncio tasks", "Task"),
]


@pytest.mark.parametrize(("before", "after", "word", "name"), CARRIED, ids=[case[2] for case in CARRIED])
def test_what_cannot_be_carried_is_named(context, before, after, word, name):
    assert context.run(before).ok
    (copy,), warnings = context.copies()
    assert len(warnings) == 1 and word in warnings[0] and name in warnings[0], warnings
    assert copy.run("1 + 1").text == "2"
    copy.leave()
    context.run(after)


def test_refused_in_the_middle_of_an_import_of_another_thread(context):
    context.run(
        "import _imp, threading\nheld, go = threading.Event(), threading.Event()\n"
        "def hold():\n    _imp.acquire_lock(); held.set(); go.wait(); _imp.release_lock()\n"
        "t = threading.Thread(target=hold); t.start(); held.wait();"
    )
    with pytest.raises(RuntimeError, match="import"):
        context.copies()
    context.run("go.set(); t.join()")
    (copy,), warnings = context.copies()
    assert warnings == [] and copy.run("1").text == "1"
    copy.leave()


@needs("sklearn", "duckdb", "pyarrow")
def test_libraries_that_were_used_compute_in_copies(context):
    context.run(
        "import numpy as np, duckdb, pyarrow as pa\nfrom sklearn.cluster import KMeans\na = np.random.rand(200, 4)\n"
        "def work():\n    KMeans(3, n_init=1).fit(a); np.linalg.svd(a)\n"
        "    return duckdb.sql('select count(*) from t').fetchall()[0][0], pa.table({'a': [1]}).num_rows\n"
        "duckdb.sql('create table t as select range x from range(10)')\nwork()"
    )
    copies, _ = context.copies(2)
    for copy in copies:
        assert copy.run("work()").text == "(10, 1)"
        copy.leave()
    assert context.run("work()").text == "(10, 1)"


@needs("plotly")
def test_a_copy_draws_with_a_browser_of_its_own(context):
    draw = "import plotly.express as px\npx.line(x=[1, 2], y=[1, 2])"
    assert "image/png" in context.run(draw).data[0]
    (copy,), warnings = context.copies()
    assert len(warnings) == 1 and "child processes" in warnings[0], warnings
    assert "image/png" in copy.run(draw).data[0]
    assert "image/png" in context.run(draw).data[0]
    copy.leave()
