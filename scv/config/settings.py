"""Every setting of SCV, declared once.

The loader, `scv config`, and `docs/configuration.md` come from these classes.
What a project file may do with a key is data on the field: `forbidden`,
`lower` (only a smaller value), `raise`, `off` (only false), `stricter` or `free`.
"""

from collections.abc import Iterator
from dataclasses import Field, field, fields
from typing import Annotated, Any, Literal, cast, get_args

from scv.shapes import Bounds
from scv.values import frozen

ProjectRule = Literal["forbidden", "lower", "raise", "off", "stricter", "free"]
ApprovalPolicy = Literal["on-risk", "always", "never"]
APPROVAL_POLICIES: tuple[ApprovalPolicy, ...] = get_args(ApprovalPolicy)
"""From the loosest to the strictest."""
Count = Annotated[int, Bounds(1)]
Amount = Annotated[int, Bounds(0)]
Name = Annotated[str, Bounds(1)]


def setting(
    default: Any, help_text: str, project: ProjectRule, *, is_secret: bool = False
) -> Any:
    """Declare one setting: default, help, the project file's right.

    A secret is left out of `repr`, and hidden wherever settings are shown.
    """
    about = {"help": help_text, "project": project}
    if isinstance(default, dict):
        return field(default_factory=default.copy, repr=not is_secret, metadata=about)
    return field(default=default, repr=not is_secret, metadata=about)


@frozen
class Profile:
    """One model endpoint."""

    kind: Literal["openai-compatible"] = setting(
        "openai-compatible", "Family of the endpoint.", "forbidden"
    )
    wire_api: Literal["responses", "practice"] = setting(
        "responses", "API the endpoint speaks.", "forbidden"
    )
    model: Name | None = setting(
        None, "Model name as the endpoint knows it.", "forbidden"
    )
    base_url: Name = setting(
        "https://api.openai.com/v1", "Where the API lives.", "forbidden"
    )
    api_key: str | None = setting(
        None, "The key itself; the file must be mode 0600.", "forbidden", is_secret=True
    )
    api_key_env: str = setting(
        "OPENAI_API_KEY", "Variable that holds the key.", "forbidden"
    )
    headers: dict[str, str] = setting(
        {}, "Extra request headers.", "forbidden", is_secret=True
    )
    timeout_seconds: Annotated[float, Bounds(0.001)] = setting(
        600, "Longest whole request, stream included.", "forbidden"
    )


@frozen
class ProviderSettings:
    """Which profile is used."""

    active: str | None = setting(
        None, "Name of the profile under `providers`, or `practice`.", "forbidden"
    )


@frozen
class AgentSettings:
    """The turn loop."""

    max_steps: Count = setting(128, "Most model requests in one turn.", "lower")
    system_prompt: str | None = setting(
        None, "Replaces the built-in system prompt.", "forbidden"
    )


@frozen
class SessionSettings:
    """How much history a session keeps for the model."""

    max_history_bytes: Count = setting(16_777_216, "Most bytes of history.", "lower")
    max_messages: Count = setting(10_000, "Most messages of history.", "lower")


@frozen
class ContextSettings:
    """What part of the history a request carries."""

    max_tokens: Count = setting(128_000, "Size of the model's context.", "lower")
    reserve_output_tokens: Amount = setting(8192, "Kept free for the answer.", "raise")
    safety_margin_tokens: Amount = setting(
        2048, "Kept free because tokens are estimated.", "raise"
    )
    bytes_per_token: Count = setting(3, "Divisor of the estimate.", "lower")
    summary_max_chars: Count = setting(
        6000, "Longest note about history that was left out.", "lower"
    )


@frozen
class ToolSettings:
    """Approval and limits of tools."""

    approval_policy: ApprovalPolicy = setting(
        "on-risk",
        "When to ask: on-risk (before changes), always (about everything), "
        "never (read only: changes are denied).",
        "stricter",
    )
    command_timeout_seconds: Count = setting(
        600, "Deadline of a command that names none.", "lower"
    )
    max_timeout_seconds: Annotated[int, Bounds(1, 86_400)] = setting(
        14_400, "Longest deadline a call may ask for.", "lower"
    )
    output_limit_bytes: Count = setting(
        65_536, "Most output of one call that the model sees.", "lower"
    )
    max_read_bytes: Count = setting(262_144, "Most bytes one read returns.", "lower")
    max_write_bytes: Count = setting(
        1_048_576, "Largest file a write may produce.", "lower"
    )


@frozen
class ApprovalSettings:
    """Questions that nobody answers."""

    timeout_seconds: Amount = setting(
        86_400, "An unanswered question is a denial after this; 0 = at once.", "lower"
    )


@frozen
class ProviderLimits:
    """Caps on one model response; a violation fails the turn and runs no call of it."""

    max_sse_event_bytes: Count = setting(1_048_576, "Largest stream event.", "lower")
    max_response_bytes: Count = setting(4_194_304, "Largest response.", "lower")
    max_assistant_bytes: Count = setting(1_048_576, "Longest answer text.", "lower")
    max_tool_calls: Count = setting(32, "Most tool calls of one response.", "lower")
    max_tool_arguments_bytes: Count = setting(
        262_144, "Longest arguments of one call.", "lower"
    )
    max_retries: Annotated[int, Bounds(0, 10)] = setting(
        2, "Further attempts while nothing was shown; 0 = none.", "lower"
    )


@frozen
class Settings:
    """The whole configuration; every section and key has a default."""

    provider: ProviderSettings = ProviderSettings()
    providers: dict[str, Profile] = setting({}, "Profiles by name.", "forbidden")
    agent: AgentSettings = AgentSettings()
    session: SessionSettings = SessionSettings()
    context: ContextSettings = ContextSettings()
    tools: ToolSettings = ToolSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    provider_limits: ProviderLimits = ProviderLimits()


def walk_fields() -> Iterator[tuple[str, "Field[Any]"]]:
    """Yield every dotted key with its field; profiles as `providers.<name>`."""
    for section in fields(Settings):
        place, shape = section.name, cast(Any, section.type)
        if place == "providers":
            place, shape = "providers.<name>", Profile
        for entry in fields(shape):
            yield f"{place}.{entry.name}", entry
