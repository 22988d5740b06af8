"""``python -m scripted_model SCRIPT.json [--port N]``: serves until it is interrupted."""

from __future__ import annotations

import argparse
import threading

from .script import Script
from .server import ScriptedModel


def main() -> None:
    parser = argparse.ArgumentParser(description="A language model that follows a script.")
    parser.add_argument("script")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with ScriptedModel(Script.load(options.script), port=options.port) as model:
        print(f"OPENAI_BASE_URL={model.base_url} OPENAI_API_KEY=scripted", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
