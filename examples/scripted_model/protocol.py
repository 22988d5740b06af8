"""The chat-completions protocol: what a request may be, and how an answer is written, whole or in pieces."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Dict, Iterator, List

from .script import Reply

PIECE = 12  # characters of text or arguments in a streamed chunk


class ProtocolError(Exception):
    """The real service would refuse this request."""


def check(request: Any) -> None:
    """Raises ProtocolError for a request that the protocol forbids."""
    if not isinstance(request, dict):
        raise ProtocolError("the body must be a JSON object")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise ProtocolError("you must provide a model parameter")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ProtocolError("'messages' must be an array of at least one message")
    waiting: List[str] = []  # tool calls that have had no answer yet
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise ProtocolError(f"{where}.role {role!r} is none of ours")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise ProtocolError(f"{where} answers no tool call of the assistant message before it")
            waiting.remove(message["tool_call_id"])
        elif waiting:
            raise ProtocolError(f"{where}: these tool calls had no answer: {waiting}")
        _check_content(where, role, message)
        if role == "assistant":
            waiting = [_check_call(f"{where}.tool_calls", call) for call in message.get("tool_calls") or []]
    if waiting:
        raise ProtocolError(f"these tool calls had no answer: {waiting}")
    for index, tool in enumerate(request.get("tools") or []):
        check_tool(f"tools[{index}]", tool)


def _check_content(where: str, role: str, message: Dict[str, Any]) -> None:
    content = message.get("content")
    if content is None:
        if role == "assistant" and message.get("tool_calls"):
            return
        raise ProtocolError(f"{where}.content must not be null")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise ProtocolError(f"{where}.content must be a string or an array of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            continue
        if kind == "image_url" and role == "user" and isinstance((part.get("image_url") or {}).get("url"), str):
            continue
        raise ProtocolError(f"{where}.content has a part of type {kind!r}, which a {role} message can't hold")


def _check_call(where: str, call: Dict[str, Any]) -> str:
    function = call.get("function") or {}
    if call.get("type") != "function" or not call.get("id") or not function.get("name"):
        raise ProtocolError(f"{where} must have a type, an id and a function")
    try:
        json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        raise ProtocolError(f"{where}: arguments must be a string of JSON") from None
    return str(call["id"])


def check_tool(where: str, tool: Dict[str, Any]) -> None:
    """Raises ProtocolError for a tool that is not described as it must be."""
    function = tool.get("function") or {}
    if tool.get("type") != "function" or not function.get("name"):
        raise ProtocolError(f"{where} must be a function with a name")
    parameters = function.get("parameters") or {}
    if function.get("strict"):
        named = set(parameters.get("properties") or {})
        if parameters.get("additionalProperties") is not False or set(parameters.get("required") or []) != named:
            raise ProtocolError(f"{where} is strict: all properties required, additionalProperties false")


def whole(request: Dict[str, Any], reply: Reply) -> Dict[str, Any]:
    """The answer as one object."""
    message: Dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(reply)}],
        "usage": _usage(request, reply),
    }


def pieces(request: Dict[str, Any], reply: Reply) -> Iterator[Dict[str, Any]]:
    """The answer as the chunks of a stream."""
    common = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": request["model"],
    }

    def chunk(delta: Dict[str, Any], reason: Any = None) -> Dict[str, Any]:
        return {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": "" if reply.text else None})
    for at in range(0, len(reply.text), PIECE):
        yield chunk({"content": reply.text[at : at + PIECE]})
    for index, call in enumerate(_calls(reply)):
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for at in range(0, len(arguments), PIECE):
            piece = {"index": index, "function": {"arguments": arguments[at : at + PIECE]}}
            yield chunk({"tool_calls": [piece]})
    yield chunk({}, _reason(reply))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**common, "choices": [], "usage": _usage(request, reply)}


def _calls(reply: Reply) -> List[Dict[str, Any]]:
    return [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in reply.calls
    ]


def _reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(request: Dict[str, Any], reply: Reply) -> Dict[str, int]:
    """Four bytes a token: a guess, so that whoever adds them up has something to add."""
    shown = len(json.dumps(request["messages"])) // 4 + 1
    said = (len(reply.text) + sum(len(json.dumps(c)) for c in reply.calls)) // 4 + 1
    return {"prompt_tokens": shown, "completion_tokens": said, "total_tokens": shown + said}
