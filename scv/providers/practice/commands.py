"""The command language of the practice model.

One command a line, or several joined by ` then `. A command is a generator: it
yields the calls it wants, is sent their results, and returns one line for the
report. Replaying it over the results of a request finds the next call.
"""

import re
from collections.abc import Callable, Generator

from scv.providers.practice.answer import ModelAnswer, ToolCall, split_text
from scv.providers.practice.conversation import Conversation, Result
from scv.values import frozen

Steps = Generator[ToolCall, Result, str]

WHO = (
    "I am SCV's practice model: a small fixed program, not a language model."
    " I need no key and no network, and I follow commands word for word."
)
SUMMARY_REQUEST = "Summarize this conversation for yourself"
"""How the server asks for what a compaction keeps."""
SUMMARY_CHARACTERS = 6000
HELP = """\
Commands, one a line, or joined by ` then `:
  read PATH                          show a file
  list [GLOB]                        list files
  search "REGEX" [in PATH]           search in files
  replace "OLD" with "NEW" in PATH   read a file, then edit it
  write PATH: TEXT                   create a file, or replace it
  run COMMAND                        run a shell command
  fetch URL                          read a web page
  delegate AGENT: TASK               give a task to another agent
  ask "QUESTION"                     ask you something
  explain                            say what I see of this session
  help                               show this text
In quotes and after `write PATH:`, \\n is a new line, \\" a quote, \\\\ a backslash."""

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
# Joints: ` then ` before what looks like a command. Quoted text is passed over.
_THEN = re.compile(
    r"""
    "(?:[^"\\]|\\.)*"
    | (?<!\S)'[^']*'(?!\S)
    | \s+then\s+(?=
        (?:read|search|replace|write|run|fetch|delegate|ask)\s+\S
        | (?:list|explain|help)(?:\s|$))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SHA256 = re.compile(r'sha256"?\s*[:=]\s*"?([0-9a-f]{64})')


@frozen
class Unknown:
    """A line that is no command."""

    line: str


def answer(conversation: Conversation) -> ModelAnswer:
    """Give the next call of the person's commands, or the report after the last."""
    if conversation.prompt.startswith(SUMMARY_REQUEST):
        return _say("\n".join([WHO, *conversation.earlier])[:SUMMARY_CHARACTERS])
    parsed = [
        _parse(line, conversation) for line in split_commands(conversation.prompt)
    ]
    unknown = [command.line for command in parsed if isinstance(command, Unknown)]
    if unknown or not parsed:
        shown = (
            f"I do not know what to do with: {unknown[0][:200]}\n" if unknown else ""
        )
        return _say(f"{WHO}\n{shown}{HELP}")
    results = iter(conversation.results)
    report: list[str] = []
    for position, steps in enumerate(parsed, 1):
        assert not isinstance(steps, Unknown)
        try:
            call = next(steps)
            while True:
                if call.name not in conversation.tools:
                    report.append(f"- the tool {call.name} is not offered here")
                    break
                result = next(results, None)
                if result is None:
                    note = f"Command {position} of {len(parsed)}: {call.name}.\n"
                    return ModelAnswer(split_text(note), [call])
                call = steps.send(result)
        except StopIteration as stop:
            report.append(stop.value)
    return _say("\n".join(report))


def split_commands(text: str) -> list[str]:
    """Split a prompt at line ends and at ` then ` before a command, outside quotes."""
    commands: list[str] = []
    for line in text.splitlines():
        start = 0
        for match in _THEN.finditer(line):
            if not match.group().startswith(('"', "'")):
                commands.append(line[start : match.start()].strip())
                start = match.end()
        commands.append(line[start:].strip())
    return [command for command in commands if command]


def _parse(line: str, conversation: Conversation) -> Steps | Unknown:
    for pattern, build in _COMMANDS:
        match = re.fullmatch(pattern, line, re.IGNORECASE | re.DOTALL)
        if match:
            return build(match, conversation)
    return Unknown(line)


def _say(text: str) -> ModelAnswer:
    return ModelAnswer(split_text(text))


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)


def _outcome(what: str, result: Result) -> str:
    if result.is_denied:
        return f"- {what}: {result.headline}"
    if result.is_failed:
        code = result.fields.get("exit_code")
        if code is not None:
            return f"- {what}: failed, exit code {code}"
        return f"- {what}: failed: {result.headline}"
    return f"- {what}: done"


def _simple(what: str, call: ToolCall) -> Steps:
    result = yield call
    return _outcome(what, result)


def _read(match: re.Match[str], _: Conversation) -> Steps:
    result = yield ToolCall("read", {"path": match[1]})
    size = result.fields.get("total_bytes")
    line = _outcome(f"read {match[1]}", result)
    return (
        f"{line}, {size} bytes" if size is not None and not result.is_failed else line
    )


def _list(match: re.Match[str], _: Conversation) -> Steps:
    arguments = {"glob": match[1]} if match[1] else {}
    return _simple(f"list {match[1] or ''}".strip(), ToolCall("list", arguments))


def _search(match: re.Match[str], _: Conversation) -> Steps:
    arguments = {"pattern": _unescape(match[1])}
    if match[2]:
        arguments["path"] = match[2]
    return _simple(f"search {match[1]}", ToolCall("search", arguments))


def _replace(match: re.Match[str], _: Conversation) -> Steps:
    old, new, path = _unescape(match[1]), _unescape(match[2]), match[3]
    what = f"replace in {path}"
    seen = yield ToolCall("read", {"path": path})
    if seen.is_failed:
        return _outcome(what, seen)
    arguments = {"path": path, "edits": [{"old": old, "new": new}]}
    sha256 = _SHA256.search(seen.output)
    if sha256:
        arguments["expected_sha256"] = sha256[1]
    result = yield ToolCall("edit", arguments)
    return _outcome(what, result)


def _write(match: re.Match[str], _: Conversation) -> Steps:
    path, text = match[1], match[2].strip()
    quoted = re.fullmatch(_QUOTED, text, re.DOTALL)
    content = _unescape(quoted[1] if quoted else text)
    if not quoted and content and not content.endswith("\n"):
        content += "\n"
    arguments = {"path": path, "content": content, "mode": "create"}
    result = yield ToolCall("write", arguments)
    if not result.is_denied and result.is_failed and "exist" in result.output:
        result = yield ToolCall("write", {**arguments, "mode": "replace"})
    return _outcome(f"write {path}", result)


def _run(match: re.Match[str], _: Conversation) -> Steps:
    result = yield ToolCall("bash", {"command": match[1]})
    line = _outcome(f"run {match[1]}", result)
    code = result.fields.get("exit_code")
    return f"{line}, exit code 0" if code == 0 and not result.is_failed else line


def _fetch(match: re.Match[str], _: Conversation) -> Steps:
    return _simple(f"fetch {match[1]}", ToolCall("web_fetch", {"url": match[1]}))


def _delegate(match: re.Match[str], _: Conversation) -> Steps:
    call = ToolCall(f"agent_{match[1]}", {"prompt": match[2]})
    return _simple(f"delegate to {match[1]}", call)


def _ask(match: re.Match[str], _: Conversation) -> Steps:
    result = yield ToolCall("ask", {"question": _unescape(match[1])})
    if result.is_failed:
        return _outcome("ask", result)
    return f"- ask: the answer is: {result.headline}"


def _explain(match: re.Match[str], conversation: Conversation) -> Steps:
    tools = ", ".join(sorted(conversation.tools)) or "none"
    done = len(conversation.results)
    return _text(
        f"{WHO}\nEach request brings me the whole conversation; I look at your last"
        f" message and the {done} results since. Tools offered to me: {tools}."
        " SCV decides what needs your approval, not I."
    )


def _help(match: re.Match[str], _: Conversation) -> Steps:
    return _text(f"{WHO}\n{HELP}")


def _text(text: str) -> Steps:
    yield from ()
    return text


_COMMANDS: tuple[tuple[str, Callable[[re.Match[str], Conversation], Steps]], ...] = (
    (r"read\s+(\S.*)", _read),
    (r"list(?:\s+(\S.*))?", _list),
    (rf"search\s+{_QUOTED}(?:\s+in\s+(\S.*))?", _search),
    (rf"replace\s+{_QUOTED}\s+with\s+{_QUOTED}\s+in\s+(\S.*)", _replace),
    (r"write\s+([^:]*[^:\s])\s*:(.*)", _write),
    (r"run\s+(\S.*)", _run),
    (r"fetch\s+(\S+)", _fetch),
    (r"delegate\s+(?:agent_)?([A-Za-z0-9_-]+)\s*:\s*(\S.*)", _delegate),
    (rf"ask\s+{_QUOTED}", _ask),
    (r"explain", _explain),
    (r"help", _help),
)
