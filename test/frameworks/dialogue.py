"""What the scripted model says in these tests: a cell that fails, one that mends it and draws, and the answer."""

from __future__ import annotations

from typing import Any

BROKEN = "import pandas as pd\ndf = pd.read_csv('/workspace/sales.csv')\nprint(len(df), 'rows')\nbest = df['Revenue'].max()"
MENDED = """print(list(df.columns))
best = df.loc[df.revenue.idxmax()]
print('peak month:', best.month)
import matplotlib.pyplot as plt
plt.bar(df.month, df.revenue)
plt.show()
df"""
# What the model must have been shown after each, in whatever message the framework puts it.
FAILED = r"3 rows[\s\S]*best = df\['Revenue'\][\s\S]*KeyError: \\?'Revenue'"
DRAWN = r"peak month: 2026-02[\s\S]*figure 1: PNG, \d+\D+\d+ pixels[\s\S]*120[\s\S]*310"
ANSWER = "The best month was {peak}, as the chart shows."


def with_tool(name: str = "run_python", *, image: bool = False) -> list[dict[str, Any]]:
    """For agents that call a tool. `image`: the figure follows in a user message."""
    seen: dict[str, Any] = {"tool": DRAWN}
    if image:
        seen["image"] = True
    return [{"start": "highest revenue", "turns": [
        {"expect": {"tools": [name]}, "call": [{"name": name, "arguments": {"code": BROKEN}}]},
        {"expect": {"tool": FAILED}, "call": [{"name": name, "arguments": {"code": MENDED}}]},
        {"expect": seen, "read": {"peak": r"peak month: (\d{4}-\d\d)"}, "say": ANSWER},
    ]}]


def in_text(before: str, after: str, end: str = ANSWER) -> list[dict[str, Any]]:
    """For agents that find code in what the model says, between two marks, and hand back what they saw as the user."""
    return [{"start": "highest revenue", "turns": [
        {"say": f"I look at the file.\n{before}{BROKEN}{after}"},
        {"expect": {"user": FAILED}, "say": f"The column has another name.\n{before}{MENDED}{after}"},
        {"expect": {"user": DRAWN}, "read": {"peak": r"peak month: (\d{4}-\d\d)"}, "say": end},
    ]}]


# For agents that work with files and a shell: a program that fails, an edit of it, and a look at the chart.
PROGRAM = """import pandas as pd
df = pd.read_csv('/workspace/sales.csv')
print(len(df), 'rows')
best = df.loc[df['Revenue'].idxmax()]
print('peak month:', best.month)
import matplotlib.pyplot as plt
plt.bar(df.month, df.revenue)
plt.savefig('/workspace/chart.png')
"""
WRONG, RIGHT = "df['Revenue'].idxmax()", "df['revenue'].idxmax()"
CRASHED = r"3 rows[\s\S]*analyse.py[\s\S]*KeyError: 'Revenue'"
RAN = r"3 rows[\s\S]*peak month: 2026-02"


def with_files(tools: list[str], write: dict[str, Any], run: dict[str, Any], mend: dict[str, Any], look: dict[str, Any]) -> list[dict[str, Any]]:
    """A turn for each call, and the answer."""
    return [{"start": "highest revenue", "turns": [
        {"expect": {"tools": tools}, "call": [write]},
        {"call": [run]},
        {"expect": {"tool": CRASHED}, "call": [mend]},
        {"call": [run]},
        {"expect": {"tool": RAN}, "call": [look]},
        {"expect": {"image": True}, "read": {"peak": r"peak month: (\d{4}-\d\d)"}, "say": ANSWER},
    ]}]


def with_patches() -> list[dict[str, Any]]:
    """For the sandbox agents of OpenAI's SDK."""
    def patch(*lines: str) -> dict[str, Any]:
        return {"name": "apply_patch", "arguments": "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"}

    def line_with(words: str) -> str:
        return next(line for line in PROGRAM.splitlines() if words in line)

    mended = line_with(WRONG).replace(WRONG, RIGHT)
    return with_files(
        ["exec_command", "write_stdin", "apply_patch", "view_image"],
        patch("*** Add File: analyse.py", *(f"+{line}" for line in PROGRAM.splitlines())),
        {"name": "exec_command", "arguments": {"cmd": "python3 analyse.py", "yield_time_ms": 30000}},
        patch("*** Update File: analyse.py", "@@", f"-{line_with(WRONG)}", f"+{mended}"),
        {"name": "view_image", "arguments": {"path": "chart.png"}},
    )


def with_workspace() -> list[dict[str, Any]]:
    """For an agent whose tools are the example's."""
    return with_files(
        ["shell", "write_file", "look_at"],
        {"name": "write_file", "arguments": {"path": "analyse.py", "text": PROGRAM}},
        {"name": "shell", "arguments": {"command": "python3 analyse.py"}},
        {"name": "shell", "arguments": {"command": "sed -i s/Revenue/revenue/ analyse.py"}},
        {"name": "look_at", "arguments": {"path": "chart.png"}},
    )


def with_edits() -> list[dict[str, Any]]:
    """For deep agents."""
    path = "/workspace/analyse.py"
    return with_files(
        ["execute", "write_file", "edit_file", "read_file", "grep", "glob", "ls"],
        {"name": "write_file", "arguments": {"file_path": path, "content": PROGRAM}},
        {"name": "execute", "arguments": {"command": f"python3 {path}"}},
        {"name": "edit_file", "arguments": {"file_path": path, "old_string": WRONG, "new_string": RIGHT}},
        {"name": "read_file", "arguments": {"file_path": "/workspace/chart.png"}},
    )
