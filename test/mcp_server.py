"""An MCP server of the official SDK, over standard streams or streamable HTTP; the tests' other end."""

from __future__ import annotations

import os
import sys
from typing import Dict, List

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("notes", log_level="ERROR")
notes: List[Dict[str, str]] = []


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def count() -> int:
    """How many notes there are."""
    return len(notes)


@server.tool()
def add(title: str, text: str = "") -> Dict[str, str]:
    """Write a note.

    Args:
        title: what it is called.
    """
    notes.append({"title": title, "text": text})
    return notes[-1]


@server.tool()
def break_it() -> str:
    """Always fails."""
    raise ToolError("it broke, and the key is " + os.environ.get("NOTES_KEY", "none"))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
