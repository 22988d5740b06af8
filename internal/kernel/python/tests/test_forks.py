"""Forks of a context that has used the libraries with threads of their own: they compute, none hangs."""

from __future__ import annotations

import pytest
from conftest import needs

FORKED = """
import os, signal
def in_child(work, times=5):
    codes = []
    for _ in range(times):
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            work()
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return codes
"""

WORK = {
    "numpy": "import numpy as np\na = np.ones((200, 200))\ndef work(): assert (a @ a)[0, 0] == 200; np.linalg.svd(a)",
    "scipy": "import scipy.linalg, numpy as np\na = np.eye(100)\ndef work(): scipy.linalg.svdvals(a)",
    "sklearn": (
        "import numpy as np\nfrom sklearn.cluster import KMeans\nfrom sklearn.ensemble import HistGradientBoostingClassifier\n"
        "a = np.random.RandomState(0).rand(200, 4)\n"
        "def work():\n    KMeans(3, n_init=1).fit(a)\n    HistGradientBoostingClassifier(max_iter=2).fit(a, a[:, 0] > 0.5)"
    ),
    "pyarrow": (
        "import pyarrow as pa, pyarrow.parquet as pq\nt = pa.table({'a': [1, 2] * 1000})\n"
        "def work():\n    assert t.group_by('a').aggregate([('a', 'sum')]).num_rows == 2\n"
        "    s = pa.BufferOutputStream(); pq.write_table(t, s); pq.read_table(pa.BufferReader(s.getvalue()))"
    ),
    "duckdb": (
        "import duckdb\nduckdb.sql('create table t as select range x from range(100000)')\n"
        "def work(): assert duckdb.sql('select count(distinct x % 7) from t').fetchall()[0][0] == 7"
    ),
    "matplotlib": "import io\nimport matplotlib.pyplot as plt\ndef work():\n    f, ax = plt.subplots(); ax.plot([1]); f.savefig(io.BytesIO()); plt.close(f)",
}


@pytest.mark.parametrize("library", [pytest.param(name, marks=needs(name)) for name in WORK])
def test_children_compute_after_the_parent_did(context, library):
    context.run("import warnings; warnings.simplefilter('ignore')")
    context.run(FORKED)
    assert context.run(WORK[library] + "\nwork()").ok
    assert context.run("in_child(work)").text == "[0, 0, 0, 0, 0]"
    assert context.run("work()\n'parent too'").text == "'parent too'"


def test_references_to_libraries_are_not_counted_and_those_to_the_users_objects_are(context):
    code = """
import json, sys
def counts(one):
    before = sys.getrefcount(one)
    kept = [one] * 1000
    return sys.getrefcount(one) - before
[counts(one) for one in (json, json.dumps, json.dumps.__code__, json.JSONEncoder, counts, object())]
"""
    assert context.run(code).text == "[0, 0, 0, 0, 1000, 1000]"
