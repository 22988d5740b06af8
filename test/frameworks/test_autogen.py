"""AutoGen's interface for executors: blocks of several languages, cancelling, restarting, writing it down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from pandastack import AsyncSandbox, RateLimitError, Sandbox
from pandastack.integrations.autogen import SandboxCodeExecutor

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()"


def with_executor(work: Callable[[SandboxCodeExecutor], Awaitable[Any]], **options: Any) -> None:
    async def main() -> None:
        async with SandboxCodeExecutor(**options) as executor:
            await work(executor)

    asyncio.run(main())


def test_blocks() -> None:
    async def work(executor: SandboxCodeExecutor) -> None:
        async def run(*blocks: tuple[str, str]) -> Any:
            return await executor.execute_code_blocks([CodeBlock(code, language) for language, code in blocks], CancellationToken())

        done = await run(("python", "x = 41"), ("sh", "echo $((1 + 1)) > n; cat n; pwd"), ("Python", "x + 1"), ("py", DRAW))
        assert (done.exit_code, done.output.splitlines()[1:4]) == (0, ["2", "/workspace", "42"]) and done.figures[0].data[:4] == b"\x89PNG"
        done = await run(("python", "print('so far')\nd = {}\nd['k']"), ("python", "never = 1"))
        assert done.exit_code == 1 and "so far" in done.output and "KeyError: 'k'" in done.output
        assert "NameError" in (await run(("python", "never"))).output
        done = await run(("bash", "echo a; echo b >&2; exit 3"))
        assert (done.exit_code, done.output) == (1, "a\nb\n[exit code 3]")
        assert "Write python or bash" in (await run(("fortran", "END"))).output
        late = await run(("python", "while True: pass"))
        assert late.exit_code == 1 and "its deadline of 2 seconds" in late.output and (await run(("python", "x"))).output == "41"
        assert "ended after 2 seconds" in (await run(("sh", "echo begun; sleep 60"))).output
        await executor.restart()
        assert "NameError" in (await run(("python", "x"))).output

    with_executor(work, timeout_seconds=2)


def test_cancelling_interrupts_the_cell() -> None:
    async def work(executor: SandboxCodeExecutor) -> None:
        token = CancellationToken()
        started = "open('/workspace/started', 'w').close()\nwhile True: pass"
        running = asyncio.ensure_future(executor.execute_code_blocks([CodeBlock(started, "python")], token))
        sandbox = executor._sandbox
        assert sandbox is not None
        for _ in range(600):
            if await sandbox.filesystem.exists("/workspace/started"):
                break
            await asyncio.sleep(0.05)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        done = await executor.execute_code_blocks([CodeBlock("1 + 1", "python")], CancellationToken())
        assert done.output == "2"  # it waits for the cell before, which the server interrupts

    with_executor(work, timeout_seconds=120)


def test_blocks_at_once_share_one_sandbox() -> None:
    async def main() -> None:
        executor = SandboxCodeExecutor(metadata={"of": "at once"})
        runs = [executor.execute_code_blocks([CodeBlock(f"{n} + 1", "python")], CancellationToken()) for n in range(4)]
        assert [done.output for done in await asyncio.gather(*runs)] == ["1", "2", "3", "4"]
        assert len(Sandbox.list(metadata={"of": "at once"})) == 1
        await executor.stop()
        await executor.stop()

    asyncio.run(main())
    assert Sandbox.list(metadata={"of": "at once"}, status="running") == []


@pytest.mark.parametrize("how", ["cancelled", "refused"])
def test_a_start_that_comes_to_nothing_leaves_nothing_and_may_be_tried_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = {"of": how}
    real = AsyncSandbox.create_code_context

    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def create_code_context(self: AsyncSandbox) -> Any:
            begun.set()
            await go.wait()
            if how == "refused":
                raise RateLimitError("too many", status_code=429)
            return await real(self)

        monkeypatch.setattr(AsyncSandbox, "create_code_context", create_code_context)
        executor = SandboxCodeExecutor(metadata=of)
        starting = asyncio.ensure_future(executor.start())
        await begun.wait()
        assert len(Sandbox.list(metadata=of, status="running")) == 1
        if how == "cancelled":
            starting.cancel()
            await asyncio.sleep(0)
        go.set()
        with pytest.raises((asyncio.CancelledError, RateLimitError)):
            await starting
        assert Sandbox.list(metadata=of, status="running") == []
        monkeypatch.setattr(AsyncSandbox, "create_code_context", real)
        async with executor:
            assert (await executor.execute_code_blocks([CodeBlock("6 * 7", "python")], CancellationToken())).output == "42"

    asyncio.run(main())


def test_the_agent_for_code_blocks() -> None:
    async def work(executor: SandboxCodeExecutor) -> None:
        agent = CodeExecutorAgent("runner", code_executor=executor)
        message = TextMessage(content="Run this:\n```python\nprint(6 * 7)\n```", source="user")
        response = await agent.on_messages([message], CancellationToken())
        assert response.chat_message.to_text() == "42"

    with_executor(work)


def test_it_can_be_written_down_and_ends_its_sandbox() -> None:
    made = SandboxCodeExecutor(timeout_seconds=7, metadata={"of": "autogen"}, api_key="pds_not_written")
    written = made.dump_component()
    assert "pds_" not in written.model_dump_json()
    again = CodeExecutor.load_component(written)
    assert isinstance(again, SandboxCodeExecutor) and again._to_config() == made._to_config()

    async def main() -> None:
        async with again:
            assert len(Sandbox.list(metadata={"of": "autogen"})) == 1

    asyncio.run(main())
    assert Sandbox.list(metadata={"of": "autogen"}, status="running") == []
