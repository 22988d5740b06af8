"""A sandbox as a workspace: Pydantic AI's own conformance suite, and agents that go on in one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pandastack
import pytest
from pandastack.integrations.pydantic_ai_workspace import SandboxWorkspace, SandboxWorkspaceBackend
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.workspaces import WorkspaceOutputLimitError, WorkspaceRef, WorkspaceTimeoutError, WorkspaceUnavailableError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from scripted_model import Script, ScriptedModel


class TestConformance(WorkspaceBackendSuite):
    @pytest.fixture(autouse=True)
    def leftovers(self) -> None:
        """OpenAI's clients of earlier tests close themselves in whatever loop runs when they are collected, and fail there."""
        gc.collect()

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def backend(self) -> AsyncIterator[SandboxWorkspaceBackend]:
        made = SandboxWorkspaceBackend()
        yield made
        if made.ref is not None:
            pandastack.Sandbox.get(made.ref.id).kill()

    @pytest.fixture
    def fresh_backend(self) -> Any:
        made: list[SandboxWorkspaceBackend] = []

        def fresh() -> SandboxWorkspaceBackend:
            made.append(SandboxWorkspaceBackend(metadata={"of": "conformance"}))
            return made[-1]

        yield fresh
        for sandbox in pandastack.Sandbox.list(metadata={"of": "conformance"}, status="running"):
            sandbox.kill()

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], SandboxWorkspaceBackend]:
        return SandboxWorkspaceBackend

    @pytest.fixture
    def destroy_environment(self) -> Callable[[SandboxWorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: SandboxWorkspaceBackend) -> None:
            assert backend.ref is not None
            await (await pandastack.AsyncSandbox.get(backend.ref.id)).kill()

        return destroy


def test_runs_go_on_in_the_sandbox_of_the_run_before() -> None:
    script = Script([
        {"start": "begin", "turns": [
            {"call": [{"name": "shell", "arguments": {"command": "echo kept >note; exit 3"}}]},
            {"expect": {"tool": "^3"}, "say": "Begun."},
        ]},
        {"start": "go on", "turns": [
            {"call": [{"name": "shell", "arguments": {"command": "cat note none"}}]},
            {"expect": {"tool": r"^1 kept\n[\s\S]*No such file"}, "say": "It is there."},
        ]},
    ])

    async def shell(ctx: RunContext[None], command: str) -> str:
        """Runs a command."""
        done = await ctx.workspace.run(command, shell=True)
        return f"{done.exit_code} {done.stdout}{done.stderr}"

    async def main() -> None:
        with ScriptedModel(script) as model:
            llm = OpenAIResponsesModel("gpt-4o", provider=OpenAIProvider(base_url=model.base_url, api_key="scripted"))
            agent = Agent(llm, tools=[shell], capabilities=[SandboxWorkspace(metadata={"of": "runs"})])
            first = await agent.run("begin")
            assert (await agent.run("go on", message_history=first.all_messages())).output == "It is there."
        assert model.refused == []

    asyncio.run(main())
    (sandbox,) = pandastack.Sandbox.list(metadata={"of": "runs"}, status="running")
    sandbox.kill()


def test_what_goes_wrong_has_the_errors_of_workspaces() -> None:
    async def main() -> None:
        async with await pandastack.AsyncSandbox.create("code-interpreter") as sandbox:
            backend = SandboxWorkspaceBackend(sandbox)
            with pytest.raises(WorkspaceTimeoutError) as late:
                await backend.run("echo begun; sleep 3600", shell=True, timeout=1)
            assert late.value.stdout == "begun\n"
            with pytest.raises(WorkspaceOutputLimitError) as long:
                await backend.run("seq 1 1000000", shell=True)
            assert long.value.stdout.startswith("1\n2\n")
        with pytest.raises(WorkspaceUnavailableError, match="has ended"):
            await backend.read_bytes("/workspace/x")
        with pytest.raises(ValueError, match="is no workspace of ours"):
            SandboxWorkspaceBackend(WorkspaceRef(provider="other", id="1"))

    asyncio.run(main())
