"""Every setting of SCV, declared once.

The loader, `scv config`, and `docs/configuration.md` come from these classes.
What a project file may do with a key is data on the field: `forbidden`,
`lower` (only a smaller value), `raise`, `off` (only false), `stricter` or `free`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ProjectRule = Literal["forbidden", "lower", "raise", "off", "stricter", "free"]
APPROVAL_POLICIES = ("on-risk", "always", "never")
"""From loosest to strictest."""


def setting(default: Any, help_text: str, project: ProjectRule, **bounds: Any) -> Any:
    """Declare one setting: default, help, the project file's right, and bounds."""
    return Field(
        default, description=help_text, json_schema_extra={"project": project}, **bounds
    )


class Section(BaseModel):
    """A table of settings; unknown keys are errors, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, strict=True
    )


class Profile(Section):
    """One model endpoint."""

    kind: Literal["openai-compatible"] = setting(
        "openai-compatible", "Family of the endpoint.", "forbidden"
    )
    wire_api: Literal["responses", "practice"] = setting(
        "responses", "API the endpoint speaks.", "forbidden"
    )
    model: str | None = setting(
        None, "Model name as the endpoint knows it.", "forbidden", min_length=1
    )
    base_url: str = setting(
        "https://api.openai.com/v1", "Where the API lives.", "forbidden", min_length=1
    )
    api_key: str | None = setting(
        None, "The key itself; the file must be mode 0600.", "forbidden", repr=False
    )
    api_key_env: str = setting(
        "OPENAI_API_KEY", "Variable that holds the key.", "forbidden"
    )
    headers: dict[str, str] = setting(
        {}, "Extra request headers.", "forbidden", repr=False
    )
    timeout_seconds: Annotated[float, Field(gt=0, strict=False)] = setting(
        600, "Longest whole request, stream included.", "forbidden"
    )


class ProviderSettings(Section):
    """Which profile is used."""

    active: str | None = setting(
        None, "Name of the profile under `providers`, or `practice`.", "forbidden"
    )


class AgentSettings(Section):
    """The turn loop."""

    max_steps: int = setting(128, "Most model requests in one turn.", "lower", gt=0)
    system_prompt: str | None = setting(
        None, "Replaces the built-in system prompt.", "forbidden"
    )


class SessionSettings(Section):
    """How much history a session keeps for the model."""

    max_history_bytes: int = setting(
        16_777_216, "Most bytes of history.", "lower", gt=0
    )
    max_messages: int = setting(10_000, "Most messages of history.", "lower", gt=0)


class ContextSettings(Section):
    """What part of the history a request carries."""

    max_tokens: int = setting(128_000, "Size of the model's context.", "lower", gt=0)
    reserve_output_tokens: int = setting(
        8192, "Kept free for the answer.", "raise", ge=0
    )
    safety_margin_tokens: int = setting(
        2048, "Kept free because tokens are estimated.", "raise", ge=0
    )
    bytes_per_token: int = setting(3, "Divisor of the estimate.", "lower", gt=0)
    summary_max_chars: int = setting(
        6000, "Longest note about history that was left out.", "lower", gt=0
    )


class ToolSettings(Section):
    """Approval and limits of tools."""

    approval_policy: Literal["on-risk", "always", "never"] = setting(
        "on-risk",
        "When to ask: on-risk (before changes), always (about everything), "
        "never (read only: changes are denied).",
        "stricter",
    )
    command_timeout_seconds: int = setting(
        600, "Deadline of a command that names none.", "lower", gt=0
    )
    max_timeout_seconds: int = setting(
        14_400, "Longest deadline a call may ask for.", "lower", gt=0, le=86_400
    )
    output_limit_bytes: int = setting(
        65_536, "Most output of one call that the model sees.", "lower", gt=0
    )
    max_read_bytes: int = setting(
        262_144, "Most bytes one read returns.", "lower", gt=0
    )
    max_write_bytes: int = setting(
        1_048_576, "Largest file a write may produce.", "lower", gt=0
    )


class ApprovalSettings(Section):
    """Questions that nobody answers."""

    timeout_seconds: int = setting(
        86_400,
        "An unanswered question is a denial after this; 0 = at once.",
        "lower",
        ge=0,
    )


class ProtocolSettings(Section):
    """Bounds of one protocol frame."""

    max_client_frame_bytes: int = setting(
        8_388_608, "Largest frame from a client.", "lower", ge=4096
    )
    max_server_frame_bytes: int = setting(
        8_388_608, "Largest frame to a client.", "lower", ge=65_536
    )


class ProviderLimits(Section):
    """Caps on one model response; a violation fails the turn and runs no call of it."""

    max_sse_event_bytes: int = setting(
        1_048_576, "Largest stream event.", "lower", gt=0
    )
    max_response_bytes: int = setting(4_194_304, "Largest response.", "lower", gt=0)
    max_assistant_bytes: int = setting(1_048_576, "Longest answer text.", "lower", gt=0)
    max_tool_calls: int = setting(32, "Most tool calls of one response.", "lower", gt=0)
    max_tool_arguments_bytes: int = setting(
        262_144, "Longest arguments of one call.", "lower", gt=0
    )
    max_retries: int = setting(
        2, "Further attempts while nothing was shown; 0 = none.", "lower", ge=0, le=10
    )


class Settings(Section):
    """The whole configuration; every section and key has a default."""

    provider: ProviderSettings = ProviderSettings.model_construct()
    providers: dict[str, Profile] = setting({}, "Profiles by name.", "forbidden")
    agent: AgentSettings = AgentSettings.model_construct()
    session: SessionSettings = SessionSettings.model_construct()
    context: ContextSettings = ContextSettings.model_construct()
    tools: ToolSettings = ToolSettings.model_construct()
    approvals: ApprovalSettings = ApprovalSettings.model_construct()
    protocol: ProtocolSettings = ProtocolSettings.model_construct()
    provider_limits: ProviderLimits = ProviderLimits.model_construct()
