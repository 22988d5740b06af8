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
