"""What front ends of Jupyter ask besides cells; that other clients see none of it is in the other files."""

from __future__ import annotations

import base64
import sys

import pytest


def reply(ran):
    assert ran.ok, ran.end
    return ran.end["reply"]


def messages(ran, kind):
    return [event.frame for event in ran.events if event.kind == "message" and event.frame["type"] == kind]


def notebook(context, code, **options):
    context.start(code, {"stdin": True, **options})
    return context.finish()


def test_completes(context):
    context.run("prices = {'apple': 3}\nclass Thing:\n    colour = 'red'\nthing = Thing()")
    found = reply(context.ask("complete_request", {"code": "x = pri", "cursor_pos": 7}))
    assert "prices" in found["matches"] and (found["cursor_start"], found["cursor_end"]) == (4, 7)
    assert found["status"] == "ok" and found["metadata"]["_jupyter_types_experimental"][0]["text"]
    found = reply(context.ask("complete_request", {"code": "thing.co"}))
    assert any(match.endswith("colour") for match in found["matches"])
    assert any("apple" in match for match in reply(context.ask("complete_request", {"code": "prices['"}))["matches"])
    assert reply(context.ask("complete_request", {"code": "nothing_begins_so", "cursor_pos": -5}))["cursor_start"] == 0


def test_inspects(context):
    context.run("def f(a, b=2):\n    \"What f does.\"")
    about = reply(context.ask("inspect_request", {"code": "f(1)", "cursor_pos": 1}))
    assert about["found"] and "What f does." in about["data"]["text/plain"] and "b=2" in about["data"]["text/plain"]
    assert not reply(context.ask("inspect_request", {"code": "nothing", "cursor_pos": 3}))["found"]


def test_tells_what_is_complete(context):
    asked = {"x = 1": "complete", "for i in y:": "incomplete", "a b": "invalid", "": "complete"}
    assert {code: reply(context.ask("is_complete_request", {"code": code}))["status"] for code in asked} == asked
    assert reply(context.ask("is_complete_request", {"code": "if 1:"}))["indent"] == "    "


def test_remembers_inputs(context):
    for code in ("a = 1", "b = 2", "a = 1", "a"):
        context.run(code)
    tail = reply(context.ask("history_request", {"hist_access_type": "tail", "n": 2}))["history"]
    assert [line[1:] for line in tail] == [[3, "a = 1"], [4, "a"]]
    search = {"hist_access_type": "search", "pattern": "a*", "unique": True, "n": 10}
    assert [line[2] for line in reply(context.ask("history_request", search))["history"]] == ["a = 1", "a"]
    some = {"hist_access_type": "range", "session": 0, "start": 1, "stop": 3, "output": True}
    assert reply(context.ask("history_request", some))["history"] == [[0, 1, ["a = 1", None]], [0, 2, ["b = 2", None]]]


def test_asking_is_no_cell(context):
    context.run("1")
    for _ in range(3):
        context.ask("complete_request", {"code": "pri"})
    assert context.run("2").end["count"] == 2
    ran = context.ask("debug_request", {})
    assert ran.end["error_name"] == "ValueError" and "debug_request" in ran.end["error_value"]
    assert reply(context.ask("kernel_info_request", {}))["version"] == sys.version.split()[0]


def test_input_is_answered(context):
    run = context.start("name = input('who? ')\nimport getpass; code = getpass.getpass()\nprint(name, code)", {"stdin": True})
    prompts, out = [], ""
    for event in context.events():
        out += event.text
        if event.kind == "input_request":
            prompts.append((event.frame["prompt"], event.frame["password"]))
            context.send({"op": "input", "id": "another", "value": "not this"})
            context.send({"op": "input", "id": run, "value": ["Ada", "xyzzy"][len(prompts) - 1]})
    assert prompts == [("who? ", False), ("Password: ", True)] or prompts[0] == ("who? ", False)
    assert out == "Ada xyzzy\n"


def test_input_is_interrupted_and_late_answers_are_for_nobody(context):
    run = context.start("kept = 1\ninput()", {"stdin": True})
    for event in context.events():
        if event.kind == "input_request":
            context.interrupt(run)
        last = event
    assert last.frame["error_name"] == "KeyboardInterrupt"
    context.send({"op": "input", "id": run, "value": "too late"})
    assert context.run("kept").text == "1"


def test_an_interrupt_that_comes_just_before_input_waits_ends_it(context):
    context.run(
        "import select, signal\nreal, calls = select.select, []\n"
        "def late(*args):\n"  # the signal comes after Python has looked for one, and before the system call
        "    calls.append(args)\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "    ready = real(*args)\n"
        "    if len(calls) > 1: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n"
        "    return ready\n"
        "select.select = late"
    )
    run = context.start("input()", {"stdin": True})
    for event in context.events():
        if event.kind == "input_request":
            context.interrupt(run)
    assert event.frame["error_name"] == "KeyboardInterrupt"
    context.run("select.select = real")


@pytest.mark.parametrize("options", [None, {"stdin": False}])
def test_nobody_answers_where_nobody_is(context, options):
    context.start("input()", options)
    assert context.finish().end["error_name"] == "StdinNotImplementedError"


def test_displays_with_ids_are_messages(context):
    ran = notebook(context, "h = display(1, display_id='d')\nfor i in range(3): h.update(i)\nfrom IPython.display import clear_output\nclear_output()\ndisplay('plain')\n7")
    assert [frame["content"]["data"]["text/plain"] for frame in messages(ran, "update_display_data")] == ["0", "1", "2"]
    assert messages(ran, "display_data")[0]["content"]["transient"] == {"display_id": "d"}
    assert messages(ran, "clear_output")[0]["content"] == {"wait": False}
    assert [data["text/plain"] for data in ran.data] == ["'plain'", "7"] and ran.text == "7"


def test_cells_of_notebooks(context):
    ran = notebook(context, "x = 3\nx", user_expressions={"double": "x * 2", "bad": "1/0"})
    assert reply(ran)["user_expressions"]["double"]["data"]["text/plain"] == "6"
    assert reply(ran)["user_expressions"]["bad"]["ename"] == "ZeroDivisionError"
    before = ran.end["next"]
    quiet = notebook(context, "x = 4\nx", silent=True)
    assert quiet.results == [] and quiet.end["next"] == before
    assert notebook(context, "x", store_history=False).end["next"] == before
    assert notebook(context, "").ok
    assert reply(notebook(context, "get_ipython().set_next_input('y = 1')"))["payload"][0]["text"] == "y = 1"
    failed = notebook(context, "1/0")
    assert failed.end["error_name"] == "ZeroDivisionError" and failed.end["reply"]["payload"] == []


# A stand-in with what the package `comm` has of its own; test_jupyter.py uses the real one, with ipywidgets.
COMM = """
import sys, types
base = types.ModuleType("comm.base_comm")
class BaseComm:
    def __init__(self, target_name="t", data=None, comm_id=None, primary=True, **_):
        self.target_name, self.comm_id = target_name, comm_id or "made-here"
        if primary: self.publish_msg("comm_open", data=data, target_name=target_name)
    def on_msg(self, f): self._f = f
    def send(self, data=None, buffers=None): self.publish_msg("comm_msg", data=data, buffers=buffers)
class CommManager:
    def __init__(self): self.comms, self.targets = {}, {}
    def register_target(self, name, f): self.targets[name] = f
    def comm_open(self, stream, ident, msg):
        c = sys.modules["comm"].create_comm(comm_id=msg["content"]["comm_id"], primary=False, target_name=msg["content"]["target_name"])
        self.comms[c.comm_id] = c
        self.targets[c.target_name](c, msg)
    def comm_msg(self, stream, ident, msg): self.comms[msg["content"]["comm_id"]]._f(msg)
base.BaseComm, base.CommManager = BaseComm, CommManager
sys.modules["comm.base_comm"] = base
"""


def test_comms(context, tmp_path):
    (tmp_path / "comm").mkdir()
    (tmp_path / "comm" / "__init__.py").write_text(COMM)
    context.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import comm")
    ran = notebook(context, "def opened(c, m): c.on_msg(lambda m: (print('heard'), c.send({'n': 1}, [bytes(reversed(b)) for b in m['buffers']])))\n"
                            "comm.get_comm_manager().register_target('mirror', opened)\nmine = comm.create_comm(target_name='x', data={'a': 1})")
    assert messages(ran, "comm_open")[0]["content"] == {"comm_id": "made-here", "data": {"a": 1}, "target_name": "x"}
    assert context.ask("comm_open", {"comm_id": "c", "target_name": "mirror", "data": {}}).ok
    ran = context.ask("comm_msg", {"comm_id": "c", "data": {}}, (b"abc",))
    sent = messages(ran, "comm_msg")[0]
    assert sent["content"]["data"] == {"n": 1} and base64.b64decode(sent["buffers"][0]) == b"cba" and ran.stdout == "heard\n"
    assert reply(context.ask("comm_info_request", {"target_name": "mirror"}))["comms"] == {"c": {"target_name": "mirror"}}
    assert context.run("mine.send({})").ok  # to nobody


def test_without_the_package_a_comm_is_closed_at_once(context):
    closed = messages(context.ask("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}), "comm_close")
    assert closed[0]["content"]["comm_id"] == "c"
    assert reply(context.ask("comm_info_request", {}))["comms"] == {}
