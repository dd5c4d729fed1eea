"""Write every generated file, or with `--check` name those that are out of date."""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from generate_configuration import configuration_text  # noqa: E402 (needs the path)
from generate_protocol import protocol_text  # noqa: E402
from generate_schema import hash_text, schema_text  # noqa: E402

FILES: dict[str, Callable[[], str]] = {
    "scv/wire/schema.json": schema_text,
    "scv/wire/schema_hash.py": hash_text,
    "docs/protocol.md": protocol_text,
    "docs/configuration.md": configuration_text,
}


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: scripts/generate [--check]", file=sys.stderr)
        return 2
    stale = [name for name, make in FILES.items() if _is_stale(ROOT / name, make())]
    if not arguments:
        for name in stale:
            (ROOT / name).write_text(FILES[name](), encoding="utf-8")
        return 0
    for name in stale:
        print(f"{name} is out of date: run scripts/generate")
    return 1 if stale else 0


def _is_stale(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
