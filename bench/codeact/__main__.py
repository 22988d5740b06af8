"""Plays tasks perfectly by JSON, a call a turn or several, and by code in the agent loop, and counts turns and tokens.

    python bench/codeact [--quick] [--docs FILE]                       # our own pack of tasks
    python bench/codeact --m3tooleval DIR [--model PROVIDER:NAME]      # the published one, from a checkout

Each arm really runs: tools are called, what they give is what the player is told, and its answer must be the right one. The code runs in
sandboxes of a daemon of its own. Prints tables and writes bench/results/*.json, as run.py does. It bounds what a perfect player takes,
and says nothing of how often a model succeeds; see docs/evidence.md. Tokens are those of o200k_base, which needs Go.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "test")]

from codeact import m3, report  # noqa: E402
from codeact.arms import CODE, CODE_ARMS, JSON_ARMS, ONE, TOGETHER, Played, play  # noqa: E402
from codeact.counting import DIALECTS, Tokens  # noqa: E402
from codeact.pack import Family, Task  # noqa: E402
from codeact.player import Player  # noqa: E402
from codeact.tasks import FAMILIES, some  # noqa: E402
from daemon import Daemon  # noqa: E402
from figures import Figure, Line, save, show  # noqa: E402


def played_all(tasks: list[tuple[Family, Task]], arms: tuple[str, ...]) -> list[Played]:
    daemon = Daemon(pool_ready=2, pool_prepared=1).start()
    out = []
    try:
        with Player() as player:
            for family, task in tasks:
                for arm in arms:
                    out.append(play(family, task, arm, player, daemon.url, daemon.key))
                    if not out[-1].right:
                        print(f"{family.name}/{task.name}, {arm}: {out[-1].answer!r} is not {task.expected!r}", flush=True)
    finally:
        daemon.stop()
        daemon.remove()
    return out


def lines(by_task: dict[str, dict[str, report.Cost]]) -> list[Line]:
    """As figures of the other benches: a sample a task."""
    out = []
    for field in ("input", "output"):
        code, one, both = (Figure([getattr(arms[arm], field) for arms in by_task.values()], "tokens") for arm in (CODE, ONE, TOGETHER))
        line = Line(f"{field} tokens of a task, code", code, ONE, one)
        if field == "input":
            line.target, line.met = f"sum ≤ {report.TARGET} of it", sum(code.samples) <= report.TARGET * sum(one.samples)
        out += [line, Line(f"{field} tokens of a task, code", code, TOGETHER, both)]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three tasks of each family, and no variants of code")
    parser.add_argument("--docs", type=Path, help="also write the tables into this page, between its marks")
    parser.add_argument("--m3tooleval", type=Path, metavar="DIR", help="a checkout of github.com/xingyaoww/code-act: play its M3ToolEval")
    parser.add_argument("--model", help="PROVIDER:NAME of a real model, for --m3tooleval; its key is in OPENAI_API_KEY or ANTHROPIC_API_KEY")
    parser.add_argument("--base-url", help="of the model's provider")
    parser.add_argument("--tasks", default="", help="for --m3tooleval: only tasks in whose names this regular expression is found")
    options = parser.parse_args()
    if options.m3tooleval:
        return m3.main(options.m3tooleval, options.model, options.base_url, options.tasks)
    tasks = [(family, task) for family in FAMILIES for task in (some(family) if options.quick else family.tasks)]
    played = played_all(tasks, (*JSON_ARMS, CODE) if options.quick else (*JSON_ARMS, *CODE_ARMS))
    tokens = Tokens()
    by_dialect = {dialect: report.costs(played, tokens, dialect) for dialect in DIALECTS}
    by_task = by_dialect["openai"]
    text = "\n\n".join([report.pooled(by_task), report.families(by_task), report.losing(by_task).replace("\n", "\n\n"), report.each(by_task)])
    print(text)
    print(f"\nwith schemas as Anthropic takes them:\n\n{report.pooled(by_dialect['anthropic'])}\n")
    made = lines(by_task)
    print(show(made))
    if options.docs:
        write(options.docs, text)
    more = {"vocabulary": "o200k_base", "codeact": {dialect: report.as_json(each) for dialect, each in by_dialect.items()}}
    print(f"\nwritten to {save(made, HERE.parent / 'results', more)}")
    wrong = [each for each in played if not each.right]
    if wrong:
        print(f"{len(wrong)} answers are wrong: the figures mean nothing")
    return 1 if wrong or any(line.met is False for line in made) else 0


def write(page: Path, text: str) -> None:
    """Puts the tables between the marks of a page."""
    before, begin, rest = page.read_text().partition("<!-- tables -->\n")
    _, end, after = rest.partition("<!-- end of tables -->")
    if not begin or not end:
        raise SystemExit(f"{page} has no lines <!-- tables --> and <!-- end of tables -->")
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
