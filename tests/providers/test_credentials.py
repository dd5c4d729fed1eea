"""Hazards SEC.2 and SEC.3: keys are checked when read, and appear nowhere."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from scv.config.settings import Profile, ProviderLimits
from scv.errors import ConfigError
from scv.providers import ModelEndpoints
from scv.providers.credential import Redactor
from tests.fakes.model_server import RESET, ModelServer
from tests.providers.asking import ask

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.anyio


async def open_with(key=None, environment=None, **profile):
    fields = {"model": "m", "api_key": key, **profile}
    async with ModelEndpoints() as endpoints:
        return endpoints.open_model(
            "test",
            Profile(**fields),
            limits=ProviderLimits(),
            model_name=None,
            environment=environment or {},
        )


async def test_sec_2_key_with_a_line_end_is_trimmed():
    async with ModelServer(key="sk-TESTSECRET") as server:
        for key in ("sk-TESTSECRET\n", "\r\n sk-TESTSECRET\t\r\n"):
            server.say("ok")
            assert (await ask(server, api_key=key)).text == "ok"


@pytest.mark.parametrize(
    "key", ["sk-TEST\nSECRET", "sk-TEST\rSECRET", "sk-TEST SECRET", "sk-TEST\x00SECRET",
            "sk-TESTéSECRET", "sk-TEST\u2028SECRET", "sk-TEST\x7fSECRET"]
)  # fmt: skip
@pytest.mark.parametrize("source", ["api_key", "environment"])
async def test_sec_2_inner_line_end_is_refused(key, source, caplog):
    caplog.set_level(0)
    variable = {"environment": {"OPENAI_API_KEY": key}}
    given = {"api_key": {"key": key}, "environment": variable}
    with pytest.raises(ConfigError) as caught:
        await open_with(**given[source])

    shown = f"{caught.value!r} {caught.value.__context__!r} {caplog.text}"
    assert "TEST" not in shown
    assert "SECRET" not in shown
    assert caught.value.key.startswith("providers.test.api_key")


@pytest.mark.parametrize("blank", [None, "", " \n"])
async def test_a_missing_key_says_what_to_set(blank):
    with pytest.raises(ConfigError) as caught:
        await open_with(blank, {"MY_KEY": " "}, api_key_env="MY_KEY")

    assert "MY_KEY" in caught.value.message
    assert caught.value.remedy is not None


async def test_the_variable_is_used_when_there_is_no_key():
    async with ModelServer(key="sk-from-variable") as server:
        server.say("ok")
        environment = {"MY_KEY": "sk-from-variable"}

        outcome = await ask(
            server, api_key="", api_key_env="MY_KEY", environment=environment
        )

        assert outcome.text == "ok"


@pytest.mark.parametrize(
    "headers",
    [{"x-team": "a\nb: c"}, {"x-team": "a\x00"}, {"bad name": "a"}, {"": "a"},
     {"x\n": "a"}, {"x-team": "é"}, {"Content-Length": "5"}, {"host": "h"}],
)  # fmt: skip
async def test_headers_that_http_cannot_carry_are_refused(headers):
    with pytest.raises(ConfigError) as caught:
        await open_with("sk-x", headers=headers)

    assert caught.value.key == "providers.test.headers"


async def test_sec_3_authorization_in_debug_logs(caplog):
    names = [
        "",
        "httpx",
        "httpcore",
        "httpcore.http11",
        "httpcore.connection",
        "asyncio",
    ]
    for name in names:
        caplog.set_level(logging.DEBUG, logger=name or None)
    secret = "team-token-0123456789"
    async with ModelServer() as server:
        server.say("ok")
        server.fail(401, {"error": f"bad {server.key} and {secret}"})
        for _ in range(3):
            server.raw(RESET, framing="close")

        for _ in range(3):
            await ask(server, headers={"X-Api-Key": secret})

        assert len(server.requests) == 5
        assert server.key not in caplog.text
        assert server.key[:10] not in caplog.text
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bad key sk-secret-123456789.", "bad key [redacted]."),
        ("bad key 'sk-secret-…789'", "bad key '[redacted]'"),
        ("key=cret-123 ends", "key=[redacted] ends"),
        ("key: sk-other-key-of-someone", "key: [redacted]"),
        ("abcd****wxyz is wrong", "[redacted] is wrong"),
        ("nothing to hide here... really", "nothing to hide here... really"),
        ("plain words, 12 of them", "plain words, 12 of them"),
    ],
)
def test_a_redactor_takes_keys_and_their_pieces(text, expected):
    assert Redactor(["sk-secret-123456789"])(text) == expected


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, scv.providers\n"
        "heavy = {'httpx', 'httpcore', 'pydantic', 'ssl', 'truststore', 'email'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert result.stderr.strip() == ""


def test_the_http_library_loads_without_its_command_line():
    code = (
        "import sys, scv.providers.lane\n"
        "heavy = {'click', 'rich', 'pygments', 'trio', 'truststore'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert result.stderr.strip() == ""
