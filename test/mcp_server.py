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
    elif sys.argv[1] == "https":  # of a host, with its certificate
        import uvicorn

        uvicorn.run(server.streamable_http_app(host=sys.argv[2]), host=sys.argv[2], port=443, ssl_certfile=sys.argv[3], ssl_keyfile=f"{sys.argv[3]}.key", log_level="error")
    else:
        server.run("stdio")
