"""Layers of configuration: what counts, who may say it, and what an error tells."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from scv.config.load import Loaded, load
from scv.config.paths import Home
from scv.config.provider import choose_profile
from scv.config.settings import Settings, walk_fields
from scv.errors import ConfigError


class Place:
    """An instance and a workspace, and the files that configure them."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.workspace = root / "workspace"
        (self.workspace / ".scv").mkdir(parents=True)
        self.home.root.mkdir()

    def user(self, text: str) -> None:
        self.home.config_file.touch(mode=0o600)
        self.home.config_file.write_text(text)

    def project(self, text: str) -> None:
        (self.workspace / ".scv" / "config.toml").write_text(text)

    def load(self, environment: dict[str, str] | None = None, **more: Any) -> Loaded:
        return load(
            self.home,
            workspace=str(self.workspace),
            environment=environment or {},
            **more,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_files_every_setting_has_its_default(place: Place) -> None:
    loaded = place.load()

    assert loaded.settings == Settings()
    assert (loaded.origins, loaded.notices) == ({}, ())


def test_a_higher_layer_wins_and_is_named(place: Place, tmp_path: Path) -> None:
    explicit = tmp_path / "explicit.toml"
    explicit.touch(mode=0o600)
    explicit.write_text("agent.max_steps = 50\ncontext.bytes_per_token = 2")
    place.user("agent.max_steps = 60\nsession.max_messages = 9")

    flags = {"agent": {"max_steps": 40}}
    loaded = place.load(config_file=str(explicit), flags=flags)

    assert loaded.settings.agent.max_steps == 40
    assert loaded.settings.context.bytes_per_token == 2
    assert loaded.settings.session.max_messages == 9
    assert loaded.origins == {
        "agent.max_steps": "command line",
        "context.bytes_per_token": str(explicit),
        "session.max_messages": str(place.home.config_file),
    }


@pytest.mark.parametrize(
    ("text", "key", "in_message", "in_remedy"),
    [
        ("agent.max_step = 5", "agent.max_step", "no setting", "agent.max_steps?"),
        ("agnt = {}", "agnt", "no setting", "Did you mean agent?"),
        ("providers.a.modl = 1", "providers.a.modl", "no setting", "<name>.model?"),
        ("qwertz = 1", "qwertz", "no setting", "scv config show"),
        ("protocol.max_client_frame_bytes = 9999", "protocol", "no setting", ""),
        ("agent = 5", "agent", "table of settings", ""),
        ('agent.max_steps = "5"', "agent.max_steps", "integer", ""),
        ("agent.max_steps = 5.0", "agent.max_steps", "integer", ""),
        ("agent.max_steps = true", "agent.max_steps", "integer", ""),
        ("agent.max_steps = 0", "agent.max_steps", "equal to 1", ""),
        ("tools.max_timeout_seconds = 86401", "tools.max_timeout_seconds", "86400", ""),
        ('tools.approval_policy = "no"', "tools.approval_policy", "'on-risk'", ""),
        ('providers.a.model = ""', "providers.a.model", "at least 1", ""),
        ("providers.a.timeout_seconds = 0", "providers.a.timeout_seconds", "0.001", ""),
        (
            "providers.a.timeout_seconds = inf",
            "providers.a.timeout_seconds",
            "finite",
            "",
        ),
        ("providers.a.headers.x = 1", "providers.a.headers.x", "string", ""),
    ],
)
def test_a_wrong_setting_is_named_with_file_key_and_remedy(
    place: Place, text: str, key: str, in_message: str, in_remedy: str
) -> None:
    place.user(text)

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert caught.value.file == str(place.home.config_file)
    assert caught.value.key == key
    assert in_message in caught.value.message
    assert in_remedy in (caught.value.remedy or "")


def test_a_wrong_secret_is_not_shown(place: Place) -> None:
    place.user("providers.a.api_key = 123456789")

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert "123456789" not in f"{caught.value} {caught.value.remedy}"
    assert caught.value.__cause__ is None


def test_an_integer_is_a_number(place: Place) -> None:
    place.user("providers.a.timeout_seconds = 5")

    assert place.load().settings.providers["a"].timeout_seconds == 5.0


def test_secrets_are_not_in_repr(place: Place) -> None:
    place.user('providers.a = { api_key = "sk-1", headers = { Cookie = "c-1" } }')

    settings = place.load().settings

    assert settings.providers["a"].api_key == "sk-1"
    assert settings.providers["a"].headers == {"Cookie": "c-1"}
    assert "sk-1" not in repr(settings)
    assert "c-1" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("agent.max_steps = 5", "agent.max_steps", 5),
        ("agent.max_steps = 500", "agent.max_steps", 128),
        ('agent.max_steps = "5"', "agent.max_steps", 128),
        ('agent.system_prompt = "x"', "agent.system_prompt", None),
        ("context.safety_margin_tokens = 9000", "context.safety_margin_tokens", 9000),
        ("context.safety_margin_tokens = 9", "context.safety_margin_tokens", 2048),
        ('tools.approval_policy = "never"', "tools.approval_policy", "never"),
        ('provider.active = "practice"', "provider.active", None),
        ("agent.max_steps = -5", "agent.max_steps", 128),
    ],
)
def test_a_project_may_only_do_what_the_setting_allows(
    place: Place, text: str, key: str, value: Any
) -> None:
    place.project(text)

    loaded = place.load()

    section, name = key.split(".")
    found = getattr(getattr(loaded.settings, section), name)
    assert found == value
    is_ignored = getattr(getattr(Settings(), section), name) == found
    assert bool(loaded.notices) == is_ignored


def test_a_project_cannot_touch_profiles(place: Place) -> None:
    place.user('providers.a = { model = "m", base_url = "https://good.example" }')
    place.project('providers.a.base_url = "https://evil.example"')

    loaded = place.load()

    assert loaded.settings.providers["a"].base_url == "https://good.example"
    assert loaded.notices


def test_the_environment_overrides_the_chosen_profile(place: Place) -> None:
    place.user('provider.active = "a"\nproviders.a.model = "m"')

    loaded = place.load({"SCV_MODEL": "other", "SCV_API_KEY_ENV": "K"})
    chosen = choose_profile(
        loaded.settings, name=None, overrides=loaded.profile_overrides
    )

    assert (chosen.name, chosen.profile.model) == ("a", "other")
    assert chosen.profile.api_key_env == "K"
    assert loaded.settings.providers["a"].model == "m"


def test_every_setting_says_what_it_is_and_who_may_set_it() -> None:
    described = dict(walk_fields())

    assert len(described) == len(set(described))
    assert {key.split(".")[0] for key in described} == {
        section.name for section in fields(Settings)
    }
    for key, entry in described.items():
        assert entry.metadata["help"].endswith("."), key
        assert entry.metadata["project"] in ("forbidden", "lower", "raise", "stricter")
    secrets = [key for key, entry in described.items() if not entry.repr]
    assert secrets == ["providers.<name>.api_key", "providers.<name>.headers"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_an_error_that_names_it(place: Place) -> None:
    place.user("")
    place.home.config_file.chmod(0)

    with pytest.raises(ConfigError) as caught:
        place.load()

    assert caught.value.file == str(place.home.config_file)
