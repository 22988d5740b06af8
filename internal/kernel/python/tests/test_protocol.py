"""The messages of PROTOCOL.md, and what a spare and a context are before their first cell."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path

import agent
import pytest


def test_ready_tells_what_was_imported(zygote):
    ready = zygote.ready
    assert set(ready["imports"]) == {"numpy", "pandas", "matplotlib.pyplot"}
    assert ready["threads"] == 1
    assert ready["version"].startswith("3.")


def test_a_failed_import_is_named_and_the_rest_goes_on():
    with agent.zygote(imports=["json", "no_such_module"], warmup="1/0") as zygote:
        assert "json" in zygote.ready["imports"]
        assert "ModuleNotFoundError" in zygote.ready["failed"]["no_such_module"]
        assert "ZeroDivisionError" in zygote.ready["failed"]["PANDASTACK_WARMUP"]
        context = zygote.context()
        assert context.run("1 + 1").text == "2"
        context.close()


def test_warmup_code_of_the_template_runs_in_the_zygote():
    with agent.zygote(imports=[], warmup="import colorsys") as zygote:
        context = zygote.context()
        assert context.run("import sys; 'colorsys' in sys.modules").text == "True"
        assert context.run("'__warmup__' in globals()").text == "False"
        context.close()


def test_a_fork_without_its_descriptors_fails_and_the_zygote_lives(zygote):
    zygote.socket.send(json.dumps({"op": "fork", "id": "bare"}).encode())
    message = zygote._until(lambda message: message["op"] == "fork_failed")
    assert message["id"] == "bare" and "4 descriptors" in message["error"]
    zygote.socket.send(b"not json")
    assert zygote._until(lambda message: message["op"] == "fork_failed")["id"] == ""


def test_closing_the_line_ends_a_context(zygote):
    context = zygote.context()
    assert context.close() == {"op": "exited", "pid": context.pid, "code": 0}


def test_a_killed_context_is_reported(zygote):
    context = zygote.context()
    os.kill(context.pid, signal.SIGKILL)
    assert zygote.exited(context.pid)["signal"] == signal.SIGKILL


def test_the_zygote_ends_with_its_socket():
    zygote = agent.Zygote(imports=[])
    zygote.socket.close()
    assert zygote.process.wait(60) == 0


def test_a_context_leads_its_own_session(context):
    assert os.getsid(context.pid) == context.pid and os.getpgid(context.pid) == context.pid


def test_init_sets_folder_and_environment(zygote, tmp_path):
    folder = tmp_path / "made" / "here"
    context = zygote.context(cwd=str(folder), envs={"GREETING": "grüß", "TZ": "Asia/Tokyo"})
    ran = context.run("import os, time\n(os.getcwd(), os.environ['GREETING'], time.tzname[0])")
    assert ran.text == f"('{folder}', 'grüß', 'JST')"
    assert context.run("!pwd; echo $GREETING").stdout == f"{folder}\ngrüß\n"
    context.close()


def test_a_folder_that_cannot_be_made_is_said(zygote, tmp_path):
    (tmp_path / "file").write_text("")
    context = zygote.fork()
    ready = context.init(cwd=str(tmp_path / "file" / "below"))
    assert "below" in ready["warnings"][0]
    assert context.run("1").text == "1"
    context.close()


def test_a_module_beside_the_user_is_imported(zygote, tmp_path):
    (tmp_path / "mine.py").write_text("answer = 42")
    context = zygote.context(cwd=str(tmp_path))
    assert context.run("import mine; mine.answer").text == "42"
    context.close()


def test_programs_inherit_nothing_of_the_kernel(context):
    ran = context.run(
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', "
        "'import os; print(sorted(k for k in os.environ if k.startswith((\"PANDA\", \"MPL\", \"PYTHONPATH\"))),"
        " sorted(map(int, os.listdir(\"/proc/self/fd\")))[:-1])'],"
        " capture_output=True, text=True).stdout)"
    )
    assert ran.stdout.strip() == "[] [0, 1, 2]"


def test_a_spare_that_rehearsed_again_is_as_fresh_as_before(zygote):
    spare = zygote.fork()
    spare.rehearse()
    spare.rehearse()
    spare.init(cwd="/tmp")
    ran = spare.run("In, Out, len(dir())")
    assert ran.end["count"] == 1
    fresh = zygote.context()
    assert ran.text == fresh.run("In, Out, len(dir())").text
    assert ran.stdout == ran.stderr == ""
    fresh.close()
    spare.close()


def test_the_rehearsal_of_a_spare_leaves_no_trace(context):
    ran = context.run("(In, Out, _, __, _i, sorted(k for k in globals() if not k.startswith('_')))")
    assert ran.end["count"] == 1
    assert ran.text is not None
    code, names = ran.text.split("[", 1)[1].split("]", 1)[0], ran.text
    assert code.startswith("''")
    assert "{}" in names and "'f'" not in names and "'sys'" not in names


def test_one_that_was_not_forked_ahead_is_like_a_spare(zygote):
    texts = []
    for ahead in (True, False):
        context = zygote.fork(ahead=ahead)
        context.init(cwd="/tmp")
        ran = context.run("import os; In, Out, sorted(globals()), os.getcwd()")
        texts.append(ran.text)
        assert ran.end["count"] == 1 and ran.stdout == ran.stderr == ""
        assert context.run("import subprocess; subprocess.run('echo child', shell=True);").stdout == "child\n"
        context.close()
    assert texts[0] == texts[1]


def test_counts_go_up(context):
    assert [(end["count"], end["next"]) for end in (context.run("0").end for _ in range(3))] == [(1, 2), (2, 3), (3, 4)]


def test_contexts_share_nothing(zygote):
    one, two = zygote.context(), zygote.context()
    one.run("x = 1; import os; os.environ['X'] = '1'; os.chdir('/')")
    assert two.run("x").end["error_name"] == "NameError"
    assert two.run("import os; os.environ.get('X'), os.getcwd()").text == "(None, '/tmp')"
    one.close(), two.close()


RANDOM = """
import random, tempfile, ssl, os
import numpy as np
(random.random(), np.random.random(), next(tempfile._get_candidate_names()), ssl.RAND_bytes(8).hex())
"""


def test_reseed_makes_siblings_differ_and_no_reseed_keeps_numpy(zygote):
    texts = []
    for entropy in (b"a" * 48, b"b" * 48):
        context = zygote.context(reseed=True, entropy=entropy)
        texts.append(context.run(RANDOM).text)
        context.close()
    first, second = (text.strip("()").split(", ") for text in texts)
    assert all(a != b for a, b in zip(first, second, strict=True))
    kept = []
    for _ in range(2):
        context = zygote.context(reseed=False)
        kept.append(context.run("import numpy as np; np.random.random()").text)
        context.close()
    assert kept[0] == kept[1]


def test_reseed_while_idle(context):
    context.run("import random, numpy as np; random.seed(1); np.random.seed(1)")
    context.send({"op": "reseed", "entropy": base64.b64encode(b"c" * 48).decode()})
    ran = context.run("a = random.random(), np.random.random(); random.seed(1); np.random.seed(1)\na, (random.random(), np.random.random())")
    fresh, seeded = eval(ran.text.replace("np.float64", "float"))
    assert fresh[0] != seeded[0] and fresh[1] != seeded[1]


def test_no_module_of_the_kernel_starts_a_thread(context):
    context.run("import numpy as np; np.ones((300, 300)) @ np.ones((300, 300))")
    context.run("import matplotlib.pyplot as plt; plt.plot([1, 2])")
    context.run("import threading")
    assert context.run("threading.active_count()").text == "1"


@pytest.mark.parametrize("name", ["PROTOCOL.md"])
def test_the_protocol_is_written_down(name):
    text = (Path(__file__).resolve().parent.parent / name).read_text()
    for op in ("ready", "fork", "init", "run", "interrupt", "result", "end", "reseed"):
        assert f'"op":"{op}"' in text
