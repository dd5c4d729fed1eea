"""`--base-url`: only the command line sends a profile's key to another address."""

import json

from tests.cli.kit import Place
from tests.fakes.model_server import ModelServer


def test_the_command_line_may_name_another_address(
    place: Place, model: ModelServer
) -> None:
    model.say("here")
    model.say("here again")
    config = place.home / "config.toml"
    config.write_text(config.read_text().replace(model.url, "http://127.0.0.1:9/v1"))

    first = place.run("exec", "--json", "--base-url", model.url, "hi")
    session = ("--session", json.loads(first.out.splitlines()[0])["sessionId"])
    without = place.run("exec", *session, "hi")
    again = place.run("exec", *session, "--base-url", model.url, "hi")

    assert (first.status, again.status) == (0, 0)
    assert again.out == "here again\n"
    assert without.status != 0
    assert "--base-url" in without.err
    assert len(model.requests) == 2
