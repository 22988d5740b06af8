"""A verb that one SDK has and another lacks fails here, unless it stands below with its reason.

The programs of the SDKs say what is public in them. Python's verbs are the measure: TypeScript's have the same names in
camelCase, and Go's the names that the tables below give, or the same in Go's own case.
"""

from __future__ import annotations

import re

from sdks import ROOT, surface

# Verbs of Python that TypeScript lacks.
NOT_IN_TYPESCRIPT = {
    "Client.close": "fetch's connections are the platform's",
    "Network.follow": "network.log({ follow: true })",
    "Sandbox.follow_logs": "logs({ follow: true })",
    "Watch.wait": "of the form with a callback, which a for await is",
}
# Verbs of TypeScript that Python lacks.
NOT_IN_PYTHON = {
    "Client.shared": "internal",
    "Commands.exec": "internal: sandbox.exec",
    "Commands.exec_stream": "internal: sandbox.exec_stream",
    "ExecutionStream.next": "of an iterator, which has other names in Python",
    "ExecutionStream.return": "of an iterator",
    "Filesystem.read_bytes": "read gives bytes in Python",
    "Filesystem.read_stream": "download, which takes any size",
    "Filesystem.read_tar": "download_dir, which unpacks it",
    "Filesystem.write_tar": "upload_dir, which packs it",
    "Process.feed": "internal",
    "Process.kill_quietly": "internal",
    "Process.listen": "internal: the callbacks of commands.run",
    "Process.send": "internal",
    "Snapshots.read_archive": "export_archive, which takes any size",
    "Tools.connect": "internal",
    "Tools.serve": "internal",
    "Watch.next": "of an iterator, which has other names in Python",
    "Watch.return": "of an iterator",
    "Sandbox.exec_stream": "commands.run with callbacks is the same and survives a broken connection",
    "Sandbox.from_info": "the constructor",
    "Sandbox.dial": "its HTTP client speaks no WebSocket: pandastack sandbox forward",
    "Sandbox.forward": "pandastack sandbox forward",
    "Forwarding": "pandastack sandbox forward",
    "PortConnection": "pandastack sandbox forward",
    "Execution": "a dataclass in Python",
    "ExecResult": "a dataclass in Python",
    "Result": "a dataclass in Python",
}
# Verbs of Python under their names in Go. None with a reason where Go has them otherwise.
IN_GO = {
    "Approvals.list": "Client.Approvals", "Approvals.get": "Client.Approval", "Approvals.decide": "Client.Decide",
    "Tools.list": "Sandbox.Tools", "Tools.set": "Sandbox.SetTools", "Tools.close": "Sandbox.CloseTools", "Tools.calls": "Sandbox.ToolCalls", "Tools.approvals": "Client.Approvals",
    "Agent.get": "Client.GetAgent", "Agent.runs": "Client.Agents", "Agent.start": "Client.StartAgent", "Agent.run": "Client.StartAgent",
    "Sandboxes.create": "Client.Create", "Sandboxes.get": "Client.Get", "Sandboxes.list": "Client.List",
    "Sandbox.create": "Client.Create", "Sandbox.get": "Client.Get", "Sandbox.list": "Client.List",
    "Sandboxes.delete": "Sandbox.Kill",
    "Templates.list": "Client.Templates", "Templates.get": "Client.Template",
    "Tokens.list": "Client.Keys", "Tokens.create": "Client.CreateKey", "Tokens.revoke": "Client.RevokeKey", "Tokens.delete": "Client.RevokeKey",
    "Snapshots.list": "Client.Snapshots", "Snapshots.get": "Client.Snapshot", "Snapshots.update": "Client.PatchSnapshot", "Snapshots.delete": "Client.DeleteSnapshot",
    "Snapshots.export_archive": "Client.ExportSnapshot", "Snapshots.import_archive": "Client.ImportSnapshot",
    "Secrets.list": "Client.Secrets", "Secrets.set": "Client.SetSecret", "Secrets.delete": "Client.DeleteSecret",
    "Sandbox.create_code_context": "Sandbox.CreateContext", "Sandbox.set_lifecycle": "Sandbox.PatchLifecycle", "Sandbox.follow_logs": "Sandbox.Logs",
    "Sandbox.set_ttl": "Sandbox.SetTTL",
    "Network.get": "Sandbox.Network", "Network.set": "Sandbox.SetNetwork", "Network.log": "Sandbox.NetworkLog", "Network.follow": "Sandbox.NetworkLog",
    "CodeContext.run_code": "CodeContext.Run", "CodeContext.info": "CodeContext.Refresh", "ExecutionStream.wait": "CodeContext.Wait",
    "Commands.run": "Sandbox.Start", "Commands.list": "Sandbox.Processes", "Commands.connect": "Sandbox.Connect", "Commands.kill": "Process.Kill",
    "Process.stream": "Process.Events", "Process.info": "Process.Refresh", "Process.send_stdin": "Process.WriteStdin",
    "Terminal.output": "Process.Events",
    "Pty.create": "Sandbox.Start", "Pty.connect": "Sandbox.Connect", "Pty.list": "Sandbox.Processes", "Pty.kill": "Process.Kill",
    "Pty.resize": "Process.Resize", "Pty.send_stdin": "Process.Type",
    "Filesystem.read": "Sandbox.ReadFile", "Filesystem.read_text": "Sandbox.ReadFile", "Filesystem.write": "Sandbox.WriteFile", "Filesystem.list": "Sandbox.ReadDir",
    "Filesystem.upload": "Sandbox.WriteFrom", "Filesystem.download": "Sandbox.Open",
}
NOT_IN_GO = {
    "AgentRun.replay": "StartAgent with ReplayOf",
    "AgentRun.fork": "StartAgent with Fork",
    "Watch.close": "leaving the loop",
    "Watch.wait": "the loop",
    "ExecutionStream.close": "leaving the loop",
    "Client.close": "its http.Client is the caller's",
    "Filesystem.walk": "ReadDir, and a loop",
}
# Methods of Go that no other SDK has.
ONLY_IN_GO = {
    "Client.ServeAgentTools": "Agent.get of Python does it for a run whose functions its agent has",
    "Sandbox.ServeTools": "without the setting of tools, which Tools.set of Python does, too",
    "Analyst.Start": "the first half of ask, for programs that show the run meanwhile",
    "Analyst.Answer": "the second half of ask",
    "Client.NewAnalyst": "a constructor in the others",
    "Client.ResumeAnalyst": "an option of the constructor in the others",
    "Sandbox.Analyst": "a constructor in the others, which make the sandbox themselves",
    "Client.APIURL": "a property in the others",
    "Client.Sandbox": "a constructor in the others",
    "Sandbox.Dial": "TypeScript has it, too",
    "Sandbox.ExecStream": "TypeScript has it, too",
    "Sandbox.OpenRange": "an option of read in the others",
    "Sandbox.RunOnce": "run_code with a language in the others",
    "Process.Feed": "what the others do with input of commands.run",
    "PortConn": "a net.Conn",
}
# Names of errors that are in one SDK only.
ERRORS_APART = {
    "APIConnectionError": "another name of NetworkError in TypeScript", "NetworkError": "APIConnectionError in Python, as published",
    "PandastackError": "PandaStackError in TypeScript, as published", "PandaStackError": "PandastackError in Python, as published",
}
# Arguments of Python's verbs that TypeScript lacks.
ARGUMENTS_APART = {
    "timeout": "another name of timeout_seconds, as published",
}
INITIALS = {"url": "URL", "urls": "URLs", "ttl": "TTL"}


def verbs(name: str) -> set[str]:
    """Each as Noun.verb, in snake_case; a terminal is a process, and has that one's verbs."""
    nouns = surface(name)["nouns"]
    nouns["Terminal"] = [verb for verb in nouns["Terminal"] if verb not in nouns["Process"]]
    return {f"{noun}.{snake(verb)}" for noun, all_verbs in nouns.items() for verb in all_verbs}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def without(names: set[str], reasons: dict[str, str]) -> set[str]:
    """Those for which no reason is given, neither for themselves nor for their noun."""
    return {name for name in names if name not in reasons and name.split(".")[0] not in reasons}


def stale(names: set[str], reasons: dict[str, str]) -> set[str]:
    """Reasons for what is no difference any more."""
    nouns = {name.split(".")[0] for name in names}
    return {name for name in reasons if name not in names and name not in nouns}


def test_python_and_typescript_have_the_same_verbs() -> None:
    python, typescript = verbs("python"), verbs("typescript")
    assert without(python - typescript, NOT_IN_TYPESCRIPT) == set()
    assert without(typescript - python, NOT_IN_PYTHON) == set()
    assert stale(python - typescript, NOT_IN_TYPESCRIPT) == set()
    assert stale(typescript - python, NOT_IN_PYTHON) == set()


def test_go_has_the_same_verbs() -> None:
    go = {f"{noun}.{verb}" for noun, methods in surface("go")["nouns"].items() for verb in methods}
    python = verbs("python")
    in_go = {name: IN_GO.get(name, usual(name)) for name in without(python, NOT_IN_GO)}
    assert {name for name, method in in_go.items() if method not in go} == set()
    assert without(go - set(in_go.values()), ONLY_IN_GO) == set()
    assert stale(go - set(in_go.values()), ONLY_IN_GO) == set()
    assert set(IN_GO) - python == set() and set(NOT_IN_GO) - python - {name.split(".")[0] for name in python} == set()


def usual(name: str) -> str:
    """Sandbox.set_ttl is Sandbox.SetTTL; terminals are processes, and files are of the sandbox."""
    noun, verb = name.split(".")
    noun = {"Terminal": "Process", "Filesystem": "Sandbox"}.get(noun, noun)
    return f"{noun}." + "".join(INITIALS.get(word, word.capitalize()) for word in verb.split("_"))


def test_errors_have_the_same_names() -> None:
    python, typescript = set(surface("python")["errors"]), set(surface("typescript")["errors"])
    assert (python ^ typescript) - set(ERRORS_APART) == set()


def test_arguments_have_the_same_names() -> None:
    options = surface("typescript") and set(surface("python")["options"])  # TypeScript's are built then
    files = [path.read_text() for path in (ROOT / "sdk/typescript/dist/esm").glob("*.d.ts") if path.name != "api.d.ts"]
    declared = re.sub(r"/\*.*?\*/", "", "\n".join(files), flags=re.DOTALL)
    words = {snake(word) for word in re.findall(r"\w+", declared)}
    assert options - words == set(ARGUMENTS_APART)
