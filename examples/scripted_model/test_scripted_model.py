"""The scripted model through the real client package: whole and streamed, and as strict as the service."""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripted_model import Script, ScriptedModel  # noqa: E402
from scripted_model.picture import decode_png, png_from_data_url  # noqa: E402

openai = pytest.importorskip("openai")

CALL = {"name": "add", "arguments": {"code": "print('peak month: 2025-06 ü')"}}
SCRIPT = [
    {
        "start": "best month",
        "turns": [
            {"expect": {"tools": ["add"]}, "say": "Let me look. ü🎉", "call": [CALL, CALL]},
            {
                "expect": {"tool": "peak", "image": True},
                "read": {"peak": r"peak month: (\S+)"},
                "say": "It was {peak}.",
            },
        ],
    }
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


def png(colour: int = 200, filters: bytes = b"\x00\x01\x02\x03\x04") -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(bytes([f]) + bytes([1, 2, 3, colour, 0, 0]) for f in filters)
    header = struct.pack(">IIBBBBB", 2, len(filters), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def shown(url: str) -> Dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(Script(SCRIPT)) as served:
        yield served


@pytest.fixture
def client(model: ScriptedModel) -> Any:
    return openai.OpenAI(base_url=model.base_url, api_key="any", max_retries=0)


def ask(client: Any, messages: List[Any], **more: Any) -> Any:
    return client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS, **more)


def first(client: Any) -> "tuple[List[Any], Any]":
    messages: List[Any] = [{"role": "user", "content": "Which was the BEST month?"}]
    message = ask(client, messages).choices[0].message
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "peak month: 2025-06 ü"} for c in message.tool_calls]
    return messages, message


def test_a_conversation_with_tools_and_a_picture(model: ScriptedModel, client: Any) -> None:
    messages, message = first(client)
    assert message.content == "Let me look. ü🎉" and len(message.tool_calls) == 2
    assert "2025-06 ü" in message.tool_calls[0].function.arguments.encode().decode("unicode_escape")
    answer = ask(client, messages + [shown(data_url(png()))])
    assert answer.choices[0].message.content == "It was 2025-06."
    assert answer.choices[0].finish_reason == "stop" and answer.usage.total_tokens > 0
    assert model.refused == [] and len(model.requests) == 2


def test_a_stream_says_the_same(client: Any) -> None:
    text, arguments = "", ""
    with client.chat.completions.stream(
        model="scripted", messages=[{"role": "user", "content": "best month"}], tools=TOOLS,
        stream_options={"include_usage": True},
    ) as stream:
        for event in stream:
            if event.type == "content.delta":
                text += event.delta
            elif event.type == "tool_calls.function.arguments.delta":
                arguments += event.arguments_delta
        final = stream.get_final_completion()
    assert text == "Let me look. ü🎉"
    assert final.choices[0].finish_reason == "tool_calls" and final.usage.total_tokens > 0
    assert arguments == "".join(c.function.arguments for c in final.choices[0].message.tool_calls)


def test_what_the_service_would_refuse(model: ScriptedModel, client: Any) -> None:
    messages, _ = first(client)
    picture = [{"type": "image_url", "image_url": {"url": data_url(png())}}]
    for bad in (
        [],
        messages[:-1],  # a call without an answer
        messages + [messages[-1]],  # an answer twice
        messages[:-1] + [{**messages[-1], "content": picture}],  # a picture in a tool message
        messages[:-1] + [{**messages[-1], "content": None}],
        [{"role": "robot", "content": "best month"}],
    ):
        with pytest.raises(openai.BadRequestError):
            ask(client, bad)
    with pytest.raises(openai.BadRequestError, match="strict"):
        strict = [{"type": "function", "function": {"name": "add", "strict": True, "parameters": {"properties": {"a": {}}}}}]
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "best month"}], tools=strict)
    assert len(model.refused) == 7


def test_what_the_script_does_not_expect(client: Any) -> None:
    messages, _ = first(client)
    wrong = [{**m, "content": "nothing"} if isinstance(m, dict) and m["role"] == "tool" else m for m in messages]
    flat = png(filters=b"")
    for bad, words in (
        ([{"role": "user", "content": "hello"}], "begins"),
        (wrong + [shown(data_url(png()))], "tool message"),
        (messages, "picture"),
        (messages + [shown(data_url(flat))], "empty"),
        (messages + [shown(data_url(png()[:-20]))], "cut|damaged"),
        (messages + [shown("data:image/png;base64,aGVsbG8=")], "signature"),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            ask(client, bad)


def test_a_key_is_needed(model: ScriptedModel) -> None:
    import urllib.error
    import urllib.request

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{model.base_url}/chat/completions", data=b"{}")
    assert caught.value.code == 401


def test_pictures_are_decoded_as_the_real_library_does() -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    ours = decode_png(png())
    theirs = image.open(io.BytesIO(png())).convert("RGB").tobytes()
    assert b"".join(ours.rows()) == theirs
    assert png_from_data_url(data_url(png())).has_colours(3)


FUNCTION = {"type": "function", "name": "add", "strict": False, "parameters": {"type": "object", "properties": {}}}
PATCH = {"type": "custom", "name": "patch"}


def respond(client: Any, items: Any, **more: Any) -> Any:
    return client.responses.create(model="scripted", input=items, tools=[FUNCTION, PATCH], **more)


def answers(response: Any, output: Any) -> List[Any]:
    calls = [item for item in response.output if item.type.endswith("_call")]
    return [*response.output, *({"type": f"{call.type}_output", "call_id": call.call_id, "output": output} for call in calls)]


def test_the_responses_api_has_the_same_conversation(model: ScriptedModel, client: Any) -> None:
    items: List[Any] = [{"role": "user", "content": "Which was the BEST month?"}]
    response = respond(client, items, instructions="Be short.")
    assert response.output_text == "Let me look. ü🎉" and [item.type for item in response.output] == ["message"] + ["function_call"] * 2
    shown_parts = [{"type": "input_text", "text": "peak month: 2025-06 ü"}, {"type": "input_image", "image_url": data_url(png())}]
    items += answers(response, shown_parts)
    answer = respond(client, items)
    assert answer.output_text == "It was 2025-06." and answer.usage.total_tokens > 0
    assert model.refused == []
    assert [message["role"] for message in model.requests[-1]["messages"]] == ["user", "assistant", "tool", "tool"]
    assert model.requests[0]["messages"][0] == {"role": "system", "content": "Be short."}


def test_custom_tools_take_words() -> None:
    script = Script([{"start": "mend", "turns": [
        {"expect": {"tools": ["patch", "add"]}, "call": [{"name": "patch", "arguments": "*** line\n"}]},
        {"expect": {"tool": "patched"}, "say": "Done."},
    ]}])
    with ScriptedModel(script) as served:
        client = openai.OpenAI(base_url=served.base_url, api_key="any", max_retries=0)
        response = respond(client, "mend it")
        assert [(item.type, item.name, item.input) for item in response.output] == [("custom_tool_call", "patch", "*** line\n")]
        items = [{"role": "user", "content": "mend it"}, *answers(response, "patched")]
        assert respond(client, items).output_text == "Done."


def test_what_the_responses_api_would_refuse(client: Any) -> None:
    items: List[Any] = [{"role": "user", "content": "best month"}]
    given = answers(respond(client, items), "peak month: 1")
    for bad, words in (
        ([], "at least one item"),
        (items + given[:-1], "No tool output found"),
        (items + given + given[-1:], "No tool call found"),
        ([{"role": "tool", "content": "best month"}], "none of ours"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "best month"}]}], "can't hold"),
        ([{"type": "web_search_call"}], "none that the scripted model knows"),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            respond(client, bad)
    for more in ({"stream": True}, {"previous_response_id": "resp_1"}):
        with pytest.raises(openai.BadRequestError, match="no such thing"):
            respond(client, items, **more)
    strict = {**FUNCTION, "strict": True, "parameters": {"properties": {"a": {}}}}
    with pytest.raises(openai.BadRequestError, match="strict"):
        client.responses.create(model="scripted", input=items, tools=[strict])
