"""Reading configuration: what lies where a file should be, and whom a key goes to."""

import os
from pathlib import Path

import pytest

from scv.config.load import load, read_file
from scv.config.paths import Home
from scv.config.provider import choose_profile
from scv.config.settings import Profile, Settings
from scv.errors import ConfigError


def test_a_pipe_in_place_of_a_project_file_is_ignored_with_a_notice(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".scv").mkdir(parents=True)
    os.mkfifo(workspace / ".scv" / "config.toml")

    loaded = load(Home(tmp_path / "home"), workspace=str(workspace), environment={})

    (notice,) = loaded.notices
    assert "not a regular file" in notice


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.toml"
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir(0o700)
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(ConfigError) as caught:
        read_file(path, private=True)

    assert caught.value.file == str(path)


PROFILE = Profile(model="m", base_url="https://api.example.com/v1", api_key="sk-1")


def chosen_url(asked: str, **overrides: str) -> str:
    settings = Settings(providers={"own": PROFILE})
    chosen = choose_profile(
        settings, name="own", overrides=overrides, asked={"base_url": asked}
    )
    return chosen.profile.base_url


@pytest.mark.parametrize(
    "asked",
    [
        "https://api.example.com/v1",
        "https://api.example.com:443/other",
        "HTTPS://API.EXAMPLE.COM/v2?x=1",
    ],
)
def test_a_session_may_name_another_place_at_the_same_origin(asked: str) -> None:
    assert chosen_url(asked) == asked


@pytest.mark.parametrize(
    "asked",
    [
        "http://api.example.com/v1",
        "https://api.example.com:8443/v1",
        "https://example.com/v1",
        "https://api.example.com.evil.org/v1",
        "https://api.example.com@evil.org/v1",
        "https://evil.org/api.example.com/v1",
        "//api.example.com/v1",
        "https://api.example.com:x/v1",
        "https://[api.example.com/v1",
        "ftp://api.example.com/v1",
        "api.example.com",
        "no url",
    ],
)
def test_a_session_may_not_send_the_key_elsewhere(asked: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen_url(asked)

    assert caught.value.key == "providers.own.base_url"
    assert "profile" in (caught.value.remedy or "")
    assert "sk-1" not in caught.value.message


def test_the_command_line_may_name_any_address() -> None:
    address = "http://127.0.0.1:8080/v1"

    assert chosen_url(address + "/", base_url=address) == address + "/"
    with pytest.raises(ConfigError):
        chosen_url(PROFILE.base_url, base_url=address)
