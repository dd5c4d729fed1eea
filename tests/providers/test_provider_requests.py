"""Hazards HIST: what a request carries, as the endpoint sees it."""

import json

import pytest

from scv.core.history import AssistantEntry, Call, NoteEntry, OutputEntry, UserEntry
from scv.core.ports import ModelRequest, ToolSpec
from scv.errors import ConfigError
from scv.providers import ModelEndpoints
from tests.fakes.model_server import (
    Answer,
    ModelServer,
    completed,
    done,
    function_call,
    message,
)
from tests.providers.asking import ask, ask_model, open_model

pytestmark = pytest.mark.anyio


async def sent_items(*history):
    async with ModelServer() as server:
        server.say("ok")
        outcome = await ask(server, *history)
        assert outcome.error is None
        return server.requests[0].input


def call(call_id, name="bash", arguments="{}"):
    return Call(call_id, name, arguments)


async def test_a_request_has_the_documented_body_and_headers():
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    async with ModelServer() as server, ModelEndpoints("1.2") as endpoints:
        server.say("ok")
        model = open_model(
            endpoints, server, headers={"X-Team": "blue", "User-Agent": "mine"}
        )
        request = ModelRequest(
            "system text é",
            [UserEntry("hi")],
            [ToolSpec("read", "reads", schema)],
            "s_1",
            effort="low",
        )
        async for _ in model.respond(request):
            pass

        seen = server.requests[0]
        assert (seen.method, seen.path) == ("POST", "/v1/responses")
        assert seen.json == {
            "model": "m",
            "instructions": "system text é",
            "input": [{"role": "user", "content": "hi"}],
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [
                {
                    "type": "function",
                    "name": "read",
                    "description": "reads",
                    "parameters": schema,
                    "strict": False,
                }
            ],
            "reasoning": {"effort": "low"},
        }
        assert seen.headers["authorization"] == f"Bearer {server.key}"
        assert seen.headers["x-team"] == "blue"
        assert seen.headers["user-agent"] == "mine"
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["accept"] == "text/event-stream"


async def test_hist_1_reasoning_items_echoed():
    """Five tool rounds against an endpoint that checks what it gets back."""
    given = []

    def check(request):
        items = request.input[1:]
        native = [i for i in items if i["type"] != "function_call_output"]
        assert native == given
        number = len(given)
        if number == 15:
            return Answer([done(message("finished")), completed()])
        thought = {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [],
            "encrypted_content": f"secret {number}",
            "unknown_field": [1, {"x": None}],
        }
        wanted = function_call("bash", {"command": "é"}, f"c{number}")
        new = [thought, message(f"text {number}", number), wanted]
        given.extend(new)
        events = [done(item, index) for index, item in enumerate(new)]
        return Answer([*events, completed()])

    async with ModelServer(on_request=check) as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        history = [UserEntry("go")]
        for _ in range(5):
            reply = (await ask_model(model, *history)).done.message
            history.append(reply)
            history += [OutputEntry(c.call_id, c.name, "out") for c in reply.calls]

        assert (await ask_model(model, *history)).text == "finished"


async def test_native_items_of_another_model_or_wire_are_converted():
    native = ({"type": "reasoning", "id": "rs_1"}, function_call("bash", "{}", "c1"))
    for wire, model in (("responses", "other"), ("chat", "m")):
        items = await sent_items(
            UserEntry("hi"),
            AssistantEntry("text", (call("c1"),), native, wire, model),
            OutputEntry("c1", "bash", "out"),
        )
        assert items == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "text"},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "bash",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "out"},
        ]


async def test_calls_without_output_are_closed_before_the_next_message():
    items = await sent_items(
        UserEntry("hi"),
        AssistantEntry("", (call("c1"), call("c2"))),
        OutputEntry("c2", "bash", "two"),
        UserEntry("go on"),
    )

    assert [i.get("call_id") for i in items] == [None, "c1", "c2", "c2", "c1", None]
    assert items[3]["output"] == "two"
    assert "interrupted" in items[4]["output"]
    assert items[5] == {"role": "user", "content": "go on"}


async def test_a_call_left_open_at_the_end_is_closed():
    items = await sent_items(UserEntry("hi"), AssistantEntry("", (call("c1"),)))

    assert items[-1]["type"] == "function_call_output"


async def test_a_note_between_calls_and_outputs_waits_for_them():
    items = await sent_items(
        AssistantEntry("", (call("c1"), call("c2"))),
        OutputEntry("c1", "bash", "one"),
        NoteEntry("note"),
        OutputEntry("c2", "bash", "two"),
    )

    outputs = [i.get("output") for i in items]
    assert outputs == [None, None, "one", "two", None]
    assert items[-1] == {"role": "user", "content": "note"}


async def test_an_output_without_call_gets_one():
    items = await sent_items(OutputEntry("c9", "read", "out"), UserEntry("hi"))

    assert items[0] == {
        "type": "function_call", "call_id": "c9", "name": "read", "arguments": "{}",
    }  # fmt: skip
    assert items[1]["call_id"] == "c9"


async def test_an_id_used_in_two_responses_is_sent_as_two():
    items = await sent_items(
        AssistantEntry("", (call("c1", arguments='{"n": 1}'),)),
        OutputEntry("c1", "bash", "one"),
        AssistantEntry("", (call("c1", arguments='{"n": 2}'),)),
        OutputEntry("c1", "bash", "two"),
    )

    assert [i["call_id"] for i in items] == ["c1", "c1", "c1_2", "c1_2"]
    assert [i.get("output") for i in items] == [None, "one", None, "two"]


@pytest.mark.parametrize("text", ['{"path": "a', "[1]", "nonsense"])
async def test_args_1_malformed_arguments_go_back_as_valid_json(text):
    items = await sent_items(
        AssistantEntry("", (call("c1", arguments=text),)),
        OutputEntry("c1", "bash", "error: not JSON", is_error=True),
    )

    assert json.loads(items[0]["arguments"]) == {"malformed_arguments": text}


async def test_empty_arguments_and_empty_text_go_out_in_their_proper_form():
    items = await sent_items(
        UserEntry("hi"),
        AssistantEntry("", (call("c1", arguments=" "),)),
        OutputEntry("c1", "bash", ""),
    )

    assert items[1]["arguments"] == "{}"
    assert items[2]["output"] == ""
    assert not any(i.get("role") == "assistant" for i in items)


async def test_hist_4_tool_output_is_a_plain_string():
    items = await sent_items(
        AssistantEntry("", (call("c1"),)), OutputEntry("c1", "bash", '{"exit_code": 0}')
    )

    assert items[1]["output"] == '{"exit_code": 0}'


async def test_half_characters_in_history_do_not_stop_a_request():
    assert await sent_items(UserEntry("a\ud800b")) == [
        {"role": "user", "content": "a?b"}
    ]


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("/v1", "/v1/responses"),
        ("/v1/", "/v1/responses"),
        ("/prefix/v1", "/prefix/v1/responses"),
        ("", "/responses"),
        ("/v1/responses", "/v1/responses"),
        ("/v1?api-version=1", "/v1/responses?api-version=1"),
        ("/a%20b/v1", "/a%20b/v1/responses"),
    ],
)
async def test_hist_2_base_url_shapes(base, path):
    async with ModelServer() as server:
        server.say("ok")

        await ask(server, base_url=f"http://127.0.0.1:{server.port}{base}")

        assert server.requests[0].path == path


@pytest.mark.parametrize(
    "url",
    ["", "host/v1", "ftp://host/v1", "http://", "http://h:99999/v1", "http://u:p@h/v1",
     "http://h/v 1", "http://h/\nv1", "http://[bad/v1"],
)  # fmt: skip
async def test_a_base_url_that_is_none_is_a_configuration_error(url):
    async with ModelServer() as server:
        with pytest.raises(ConfigError) as caught:
            await ask(server, base_url=url or " ")

    assert caught.value.key == "providers.test.base_url"


@pytest.mark.parametrize(
    "environment",
    [
        {"ALL_PROXY": "socks5://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"},
        {"all_proxy": "socks5h://127.0.0.1:1", "http_proxy": "127.0.0.1:1"},
    ],
)
async def test_hist_6_local_provider_with_proxy_variables_set(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with ModelServer() as server:
        for host in ("127.0.0.1", "localhost"):
            server.say("ok")
            url = f"http://{host}:{server.port}/v1"
            outcome = await ask(server, environment=environment, base_url=url)
            assert outcome.text == "ok"


async def test_hist_6_a_socks_proxy_for_another_host_is_one_clear_error():
    environment = {"ALL_PROXY": "socks5://user:hunter2@127.0.0.1:1"}
    async with ModelServer() as server:
        with pytest.raises(ConfigError) as caught:
            await ask(server, environment=environment, base_url="http://model.test/v1")

    assert caught.value.key == "ALL_PROXY"
    assert "SOCKS" in caught.value.message
    assert "hunter2" not in caught.value.message


async def test_another_host_is_reached_through_the_proxy():
    async with ModelServer() as server:
        server.say("ok")
        proxy = f"http://user:hunter2@127.0.0.1:{server.port}"
        base_url = "http://model.test/v1"

        outcome = await ask(
            server, environment={"HTTP_PROXY": proxy}, base_url=base_url
        )

        assert outcome.text == "ok"
        assert server.requests[0].path == "http://model.test/v1/responses"
        assert server.requests[0].headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "excluded", ["*", "model.test", ".test", "other, MODEL.test:80", "*.test"]
)
async def test_no_proxy_names_hosts_that_are_reached_directly(excluded):
    async with ModelServer() as server:
        environment = {
            "http_proxy": f"http://127.0.0.1:{server.port}",
            "NO_PROXY": excluded,
        }

        outcome = await ask(
            server,
            environment=environment,
            base_url="http://model.test/v1",
            limits=None,
        )

        assert server.requests == []
        assert "model.test" in outcome.failure.message


async def test_a_missing_model_is_a_configuration_error():
    async with ModelServer() as server:
        with pytest.raises(ConfigError) as caught:
            await ask(server, model=None)

    assert caught.value.key == "providers.test.model"
    assert "practice" in (caught.value.remedy or "")
