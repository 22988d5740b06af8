"""A data analyst: a model that writes pandas, and a sandbox that runs it.

The file is loaded once. Every tool call after that is a cell in the same warm interpreter, so what one call computed the
next one uses. Charts are caught by the interpreter and go back to the model as pictures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from pandastack import Execution, Result, Sandbox

Listener = Callable[[Dict[str, Any]], None]

MAX_ROUNDS = 12  # answers with tool calls before we give up
MAX_TEXT = 20_000  # characters of one cell's outcome that the model is shown

INSTRUCTIONS = """You are a careful data analyst. A table is loaded as the pandas DataFrame `df` in a Python session that
keeps its state between your calls; pandas is imported as pd and matplotlib.pyplot as plt. Use the tool to look, compute
and draw; compute a number before you state it. Draw with plt and end with plt.show(); you are then shown the chart.
Answer in one or two sentences."""

TOOLS: List[Dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "run_python",
            "description": "Runs a cell in the Python session where `df` is loaded. Returns what it prints, the value "
            "of its last expression (tables as HTML) or the traceback. Charts are shown to you afterwards.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Python, as in a notebook cell"}},
                "required": ["code"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


class Analyst:
    """One conversation about one file. A context manager: the sandbox ends with it.

    Args:
        model: an OpenAI client, or anything with its ``chat.completions.create``.
        name: of the model, one that sees pictures.
        listen: called with each step as a dict: ``{"type": "question" | "code" | "output" | "table" | "chart" |
            "error" | "answer", "text": str}``; a chart's text is its PNG in base64. Charts come while the cell that
            draws them still runs.
    """

    def __init__(self, model: Any, name: str, listen: Optional[Listener] = None) -> None:
        self._model = model
        self._name = name
        self._listen = listen or (lambda step: None)
        self._messages: List[Any] = [{"role": "system", "content": INSTRUCTIONS}]
        self._sandbox = Sandbox.create(template="code-interpreter", ttl_seconds=3600)
        self._session = self._sandbox.create_code_context()

    def load(self, csv: Path) -> None:
        """Puts the file into the sandbox and reads it once. Columns called "date" become dates."""
        self._sandbox.filesystem.upload(csv, f"/workspace/{csv.name}")
        loaded = self._session.run_code(
            "import matplotlib.pyplot as plt\nimport pandas as pd\n"
            f"df = pd.read_csv({f'/workspace/{csv.name}'!r})\n"
            "if 'date' in df: df['date'] = pd.to_datetime(df['date'])\n"
            "print(df.dtypes.to_string(), f'\\n{len(df)} rows')"
        )
        if loaded.error:
            raise SystemExit(f"{csv} can't be read:\n{loaded.error}")
        self._messages.append({"role": "system", "content": f"`df` holds {csv.name}:\n{loaded.stdout}"})

    def ask(self, question: str) -> str:
        """Lets the model work until it answers."""
        self._tell("question", question)
        self._messages.append({"role": "user", "content": question})
        for _ in range(MAX_ROUNDS):
            said = self._model.chat.completions.create(model=self._name, messages=self._messages, tools=TOOLS)
            message = said.choices[0].message
            self._messages.append(message)
            if not message.tool_calls:
                self._tell("answer", message.content or "")
                return message.content or ""
            charts: List[str] = []
            for call in message.tool_calls:
                text, drawn = self._run(call.function.arguments)
                self._messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
                charts += drawn
            # A tool message holds only text, so the pictures follow in a user message, after all of them.
            if charts:
                self._messages.append({"role": "user", "content": [_text("The charts of your last calls:"), *map(_picture, charts)]})
        raise RuntimeError(f"no answer after {MAX_ROUNDS} rounds")

    def _run(self, arguments: str) -> "tuple[str, List[str]]":
        """Runs what the model wrote; gives the text for it and the charts (PNG, base64)."""
        try:
            code = json.loads(arguments)["code"]
        except (ValueError, KeyError, TypeError):
            return 'The arguments must be a JSON object {"code": "…"}.', []
        self._tell("code", code)
        ex = self._session.run_code(code, timeout_seconds=60, on_result=self._show)
        text = describe(ex)
        self._tell("error" if ex.error else "output", ex.error or ex.stdout)
        return text, [r.png for r in ex.results if r.png]

    def _show(self, result: Result) -> None:
        if result.png:
            self._tell("chart", result.png)
        elif result.html:
            self._tell("table", result.html)
        elif result.text:
            self._tell("output", result.text)

    def _tell(self, kind: str, text: str) -> None:
        if text:
            self._listen({"type": kind, "text": text})

    def close(self) -> None:
        self._session.close()
        self._sandbox.kill()

    def __enter__(self) -> "Analyst":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def describe(ex: Execution) -> str:
    """A cell's outcome as the model reads it: never empty, never longer than MAX_TEXT."""
    parts = [ex.stdout.rstrip(), ex.stderr.rstrip()]
    parts += [(r.html or r.text or "").strip() for r in ex.results if not r.png]
    if ex.error:
        parts.append(f"Error:\n{ex.error}")
    if not ex.state_survived:
        parts.append("The session was restarted: its variables are gone, `df` too.")
    charts = sum(1 for r in ex.results if r.png)
    if charts:
        parts.append(f"({charts} chart{'s' if charts > 1 else ''} drawn)")
    text = "\n".join(part for part in parts if part) or "(no output: did you forget to print, or to end with an expression?)"
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
    return text


def _text(text: str) -> Dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(png: str) -> Dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
