"""Find files and matching lines in a process of its own, so that it can be killed.

Run as a script with the interpreter's `-I -S`: it imports little and nothing of
SCV. The current directory is the one to walk; the request is one JSON object as
the only argument, and what is found goes to stdout as

    path NUL line ":" offset ":" LF     (a matching line and where it begins)
    path NUL                            (when only files are listed)

in the order of path components. Ignore rules are those of `.gitignore` files,
read as ripgrep reads them; `.git` and symbolic links are passed over.
"""

from __future__ import annotations  # the types below are never needed to run

import os
import re
import sys

TYPE_CHECKING = False  # without `typing`, which would double the time to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_BLOCK_BYTES = 4 << 20
_LARGEST_IGNORE_FILE = 1 << 20

Rule = tuple[bool, bool, re.Pattern[bytes]]
"""Whether it re-includes, whether it is for directories only, and its expression."""


def glob_regex(glob: str) -> str:
    """Translate a glob over a relative path into an expression for the whole path.

    A glob without a slash is for the last component at any depth.
    """
    glob = glob.removeprefix("./")
    anchored = "/" in glob.rstrip("/") or glob.startswith("/")
    glob = glob.lstrip("/")
    if glob.endswith("/"):
        glob += "**"
    return ("" if anchored else "(?:.*/)?") + _translate(glob)


def _translate(glob: str) -> str:
    """Translate without anchors: `*` and `?` stop at a slash, `**` does not."""
    out, i, depth = "", 0, 0
    while i < len(glob):
        c = glob[i]
        i += 1
        if c == "*":
            start = i - 1
            while i < len(glob) and glob[i] == "*":
                i += 1
            opens = start == 0 or glob[start - 1] == "/"
            if i - start == 2 and opens and i == len(glob):
                out += ".*" if start == 0 else ".+"
            elif i - start == 2 and opens and glob[i] == "/":
                i += 1
                out += "(?:.*/)?"
            else:
                out += "[^/]*"
        elif c == "?":
            out += "[^/]"
        elif c == "[":
            end = _class_end(glob, i)
            if end < 0:
                raise ValueError("a `[` is not closed")
            out += _class(glob[i:end])
            i = end + 1
        elif c == "{":
            depth += 1
            out += "(?:"
        elif c == "}" and depth:
            depth -= 1
            out += ")"
        elif c == "," and depth:
            out += "|"
        elif c == "\\":
            if i == len(glob):
                raise ValueError("it ends with a backslash")
            out += re.escape(glob[i])
            i += 1
        else:
            out += re.escape(c)
    if depth:
        raise ValueError("a `{` is not closed")
    return out


def _class_end(glob: str, i: int) -> int:
    if i < len(glob) and glob[i] in "!^":
        i += 1
    return glob.find("]", i + 1)  # a first `]` is one of the characters


def _class(body: str) -> str:
    negated = body[0] in "!^"
    chars = body[1:] if negated else body
    out = ""
    i = 0
    while i < len(chars):
        if i + 2 < len(chars) and chars[i + 1] == "-":
            if chars[i] > chars[i + 2]:
                raise ValueError("a range in `[…]` runs backwards")
            out += re.escape(chars[i]) + "-" + re.escape(chars[i + 2])
            i += 3
        else:
            out += re.escape(chars[i])
            i += 1
    return f"(?!/)[{'^' if negated else ''}{out}]"


def ignore_rules(text: bytes) -> list[Rule]:
    """Read a `.gitignore`; rules that make no sense are passed over."""
    rules = []
    for raw in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if line.startswith("#"):
            continue
        if not line.endswith("\\ "):
            line = line.rstrip()
        if not line:
            continue
        included = line.startswith("!")
        line = line.removeprefix("!") if included else line
        if line.startswith(("\\!", "\\#")):
            line = line[1:]
        rooted = line.startswith("/")
        line = line.removeprefix("/")
        directories = line.endswith("/")
        line = line.removesuffix("/") if directories else line
        if not line:
            continue
        anywhere = not rooted and "/" not in line
        try:
            body = ("(?:.*/)?" if anywhere else "") + _translate(line)
            expression = re.compile(os.fsencode(body), re.DOTALL)
        except (ValueError, re.error):
            continue
        rules.append((included, directories, expression))
    return rules


class Ignores:
    """The rules that hold in one directory: its own, then those of its parents."""

    def __init__(self, prefix: bytes, rules: list[Rule], above: Ignores | None):
        self.prefix, self.rules, self.above = prefix, rules, above

    def ignored(self, path: bytes, is_directory: bool) -> bool:
        """Ask the nearest file that says something; its last matching rule decides."""
        at: Ignores | None = self
        while at is not None:
            rest = path[len(at.prefix) :]
            for included, directories, expression in reversed(at.rules):
                if (is_directory or not directories) and expression.fullmatch(rest):
                    return not included
            at = at.above
        return False


def _rules_in(directory: bytes) -> list[Rule]:
    try:
        with open(directory + b".gitignore", "rb") as file:
            return ignore_rules(file.read(_LARGEST_IGNORE_FILE))
    except OSError:
        return []


def _ignores_above(start: bytes) -> Ignores | None:
    """Collect the rules of the directories above `start`, up to the workspace."""
    found: Ignores | None = None
    parts = start.split(b"/")[:-1] if start else []
    for count in range(len(parts)):
        prefix = b"".join(part + b"/" for part in parts[:count])
        rules = _rules_in(prefix)
        if rules:
            found = Ignores(prefix, rules, found)
    return found


def walk(
    start: bytes,
    keep: Callable[[bytes], Any],
    above: Ignores | None,
    always: Ignores | None,
) -> Iterator[bytes]:
    """Yield files below `start` (empty, or ending with a slash), in component order.

    A directory with a `.git` is a repository of its own: of the rules above it only
    `always`, those from above the place where the walk began, hold there.
    """
    try:
        with os.scandir(start or b".") as entries:
            found = sorted(entries, key=_entry_name)
    except OSError:
        return
    names = {entry.name for entry in found} & {b".gitignore", b".git"}
    if b".git" in names:
        above = always
    if b".gitignore" in names:
        rules = _rules_in(start)
        if rules:
            above = Ignores(start, rules, above)
    for entry in found:
        path = start + entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name == b".git" or (above and above.ignored(path, True)):
                continue
            yield from walk(path + b"/", keep, above, always)
        elif entry.is_file(follow_symlinks=False) and entry.name != b".git":
            if keep(path) and not (above and above.ignored(path, False)):
                yield path


def _entry_name(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name


class Matcher:
    """Matching lines of a block of text, which ends where a line ends.

    The expression of a `whole` request cannot match across a line end; otherwise
    each line is tried alone. `needle` is text that a match must contain, `loose` the
    expression for text with undecodable bytes.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        flags = re.ASCII if request["ascii"] else re.NOFLAG
        self.fold = bool(request["ignore_case"])
        self.needle = os.fsencode(request["needle"])
        self.only_needle = bool(request["only_needle"])
        self.whole = bool(request["whole"])
        source = request["pattern"]
        if self.whole:  # its sets take care of letter case
            flags |= re.MULTILINE
        elif self.fold:
            flags |= re.IGNORECASE
        self.text = re.compile(source, flags)
        self.loose = re.compile(request["loose"], flags)
        self.bytes = re.compile(source.encode(), flags) if request["bytes"] else None

    def starts(self, block: bytes) -> Iterator[int]:
        """Yield where each matching line begins, in order."""
        if self.needle:
            text = block.lower() if self.fold else block  # of the same length: ASCII
            if self.needle not in text:
                return
            if self.only_needle:
                yield from self._by_needle(text)
                return
        if not self.whole:
            yield from self._line_by_line(block)
        elif self.bytes is not None:
            yield from self._by_search(self.bytes, block)
        else:
            yield from self._by_text(block)

    def _by_text(self, block: bytes) -> Iterator[int]:
        expression = self.text
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = block.decode("utf-8", "surrogateescape")
            expression = self.loose
        if len(text) == len(block):
            yield from self._by_search(expression, text)
            return
        at = done = 0
        for start in self._by_search(expression, text):
            done += len(text[at:start].encode("utf-8", "surrogateescape"))
            at = start
            yield done

    def _by_needle(self, block: bytes) -> Iterator[int]:
        position = block.find(self.needle)
        while position >= 0:
            yield block.rfind(b"\n", 0, position) + 1
            end = block.find(b"\n", position)
            if end < 0:
                return
            position = block.find(self.needle, end + 1)

    def _by_search(self, expression: Any, text: Any) -> Iterator[int]:
        newline = b"\n" if isinstance(text, bytes) else "\n"
        length = len(text)
        last = length - 1 if text.endswith(newline) else length
        position = 0
        while position <= last:
            match = expression.search(text, position)
            if match is None:
                return
            at = match.start()
            if at > last:
                return
            yield text.rfind(newline, 0, at) + 1
            end = text.find(newline, at)
            if end < 0:
                return
            position = end + 1

    def _line_by_line(self, block: bytes) -> Iterator[int]:
        start = 0
        search = self.text.search
        while start < len(block):
            end = block.find(b"\n", start)
            end = len(block) if end < 0 else end
            if search(block[start:end].decode("utf-8", "surrogateescape")):
                yield start
            start = end + 1


def search_file(path: bytes, matcher: Matcher, out: Callable[[bytes], Any]) -> int:
    """Write the matching lines of one file; returns how many."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        hits, number, base = 0, 1, 0
        rest = b""
        while True:
            try:
                read = os.read(fd, _BLOCK_BYTES if rest or base else 1 << 16)
            except OSError:
                return hits
            block = rest + read
            if read:
                cut = block.rfind(b"\n") + 1
                block, rest = block[:cut], block[cut:]
                if not block:
                    continue
            elif not block:
                return hits
            at = 0
            for start in matcher.starts(block):
                number += block.count(b"\n", at, start)
                at = start
                out(b"%b\0%d:%d:\n" % (path, number, base + start))
                hits += 1
            if not read:
                return hits
            number += block.count(b"\n", at)
            base += len(block)
    finally:
        os.close(fd)


def main() -> None:
    """Serve the one request."""
    import json

    request = json.loads(sys.argv[1])
    start = os.fsencode(request["start"])
    secret = re.compile(request["secret"].encode())
    wanted = re.compile(os.fsencode(request["glob"]), re.DOTALL)
    skip = len(start)

    def keep(path: bytes) -> bool:
        return wanted.fullmatch(path, skip) is not None

    def keep_open(path: bytes) -> bool:
        return keep(path) and secret.search(path) is None

    stdout = sys.stdout.buffer
    if request["file"]:
        files: Iterator[bytes] = iter([start])
    else:
        above = _ignores_above(start)
        listing = request["pattern"] is None
        files = walk(start, keep if listing else keep_open, above, above)
    if request["pattern"] is None:
        for path in files:
            stdout.write(path + b"\0")
        return
    matcher = Matcher(request)
    for path in files:
        if search_file(path, matcher, stdout.write):
            stdout.flush()


if __name__ == "__main__":
    main()
