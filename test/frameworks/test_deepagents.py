"""A deep agent in a sandbox: each of its tools, what it is told when something goes wrong, and the backend by itself."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pandastack
import pytest
from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI
from pandastack.integrations.deepagents import SandboxBackend
from scripted_model import Script, ScriptedModel


def ask(backend: SandboxBackend, turns: list[dict[str, Any]], way: str = "sync") -> tuple[str, ScriptedModel]:
    with ScriptedModel(Script([{"start": "go", "turns": turns}])) as model:
        llm = ChatOpenAI(model="gpt-4o", base_url=model.base_url, api_key="scripted")
        agent = create_deep_agent(llm, backend=backend)
        asked = {"messages": [{"role": "user", "content": "go"}]}
        state = agent.invoke(asked) if way == "sync" else asyncio.run(agent.ainvoke(asked))
    assert model.refused == []
    return state["messages"][-1].content, model


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_agent_writes_runs_edits_and_searches(shared: pandastack.Sandbox, way: str) -> None:
    path = f"/workspace/{way}/add.py"
    said, _ = ask(SandboxBackend(shared), [
        {"call": [call("write_file", file_path=path, content="total = sum([1, 2])\nprint('total:', totl)\n")]},
        {"call": [call("execute", command=f"python3 {path}")]},
        {"expect": {"tool": r"NameError: name 'totl'[\s\S]*exit code 1"}, "call": [call("edit_file", file_path=path, old_string="totl", new_string="total")]},
        {"call": [call("execute", command=f"python3 {path}; ls -d {path}")]},
        {"expect": {"tool": rf"total: 3\s+{path}"}, "call": [call("grep", pattern="sum([1", path="/workspace", output_mode="content")]},
        {"expect": {"tool": r"add\.py[\s\S]*total = sum"}, "call": [call("glob", pattern=f"{way}/*.py", path="/workspace")]},
        {"expect": {"tool": re.escape(path)}, "call": [call("ls", path=f"/workspace/{way}")]},
        {"expect": {"tool": re.escape(path)}, "call": [call("read_file", file_path=path)]},
        {"expect": {"tool": r"print\('total:', total\)"}, "say": "It adds."},
    ], way)
    assert said == "It adds."


def test_output_that_is_too_long_stays_in_the_sandbox(shared: pandastack.Sandbox) -> None:
    said, model = ask(SandboxBackend(shared), [
        {"call": [call("execute", command="seq 1 200000")]},
        {"expect": {"tool": r"1\s+1\n[\s\S]*lines truncated[\s\S]*200000\n"}, "read": {"path": r"the whole output is in ([^\]\s]+)"}, "call": [call("execute", command="wc -l {path}")]},
        {"expect": {"tool": "200000"}, "say": "All of it is there."},
    ])
    assert said == "All of it is there."
    assert max(len(str(message)) for message in model.requests[-1]["messages"] if message["role"] == "tool") < 10_000


def test_what_goes_wrong_is_told() -> None:
    with pandastack.Sandbox.create("code-interpreter") as gone:
        backend = SandboxBackend(gone, timeout_seconds=60)
        ask(backend, [
            {"call": [call("execute", command="echo begun; sleep 3600", timeout=1)]},
            {"expect": {"tool": r"begun[\s\S]*ended at its deadline"}, "call": [call("read_file", file_path="/workspace/none.txt")]},
            {"expect": {"tool": "none.txt"}, "say": "Well."},
        ])
    ask(backend, [
        {"call": [call("execute", command="true")]},
        {"expect": {"tool": "its sandbox has ended"}, "call": [call("write_file", file_path="/workspace/a", content="x")]},
        {"expect": {"tool": "its sandbox has ended"}, "say": "It is gone."},
    ])
    assert "its sandbox has ended" in str(backend.download_files(["/workspace/a"])[0].error)


def test_files_go_up_and_down_each_by_itself(shared: pandastack.Sandbox) -> None:
    backend = SandboxBackend(shared)
    assert backend.id == shared.id
    up = backend.upload_files([("/workspace/up/a.bin", b"\x00\xff"), ("relative", b""), ("/workspace", b"")])
    assert [answer.error for answer in up] == [None, "invalid_path", "is_directory"]
    down = backend.download_files(["/workspace/up/a.bin", "/workspace/up/none", "/workspace/up", "relative"])
    assert [(answer.content, answer.error) for answer in down] == [
        (b"\x00\xff", None), (None, "file_not_found"), (None, "is_directory"), (None, "invalid_path"),
    ]
    with pytest.raises(TypeError, match="must be a Sandbox, not str"):
        SandboxBackend("sb_1")  # type: ignore[arg-type]


def test_output_and_errors_are_one_text_in_order(shared: pandastack.Sandbox) -> None:
    backend = SandboxBackend(shared)
    done = backend.execute("echo one; echo two >&2; echo three; exit 3")
    assert (done.output, done.exit_code, done.truncated) == ("one\ntwo\nthree\n", 3, False)
    assert "timeout_seconds must be above 0" in backend.execute("true", timeout=-1).output
    assert backend.execute("echo on", timeout=0).output == "on\n"


def test_a_cancelled_command_is_killed(shared: pandastack.Sandbox) -> None:
    async def main() -> None:
        task = asyncio.create_task(SandboxBackend(shared).aexecute("echo > /tmp/begun; exec sleep 4242"))
        while not await asyncio.to_thread(shared.filesystem.exists, "/tmp/begun"):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Looked at in here: the end of the loop waits for the thread that waits for the command.
        assert (await asyncio.to_thread(shared.exec, "pgrep -f '[s]leep 4242'")).stdout == ""

    asyncio.run(main())
