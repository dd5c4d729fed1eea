"""`scv sessions`: find, copy, remove, export and import; and read beside its owner."""

import json
import os
import stat
import threading

from tests.cli.kit import WAIT_SECONDS, Json, Place
from tests.cli.terminal import CTRL_C, ENTER, Terminal
from tests.fakes.model_server import ModelServer


def talk(place: Place, prompt: str) -> str:
    """Leave a session behind; returns its id."""
    done = place.run("exec", "--provider", "practice", "--yes", prompt)
    assert done.status == 0, done.err
    return str(sessions(place)[0]["id"])


def sessions(place: Place) -> list[Json]:
    listed = place.run("sessions", "list", "--json")
    assert listed.status == 0, listed.err
    return list(json.loads(listed.out)["sessions"])


def items(place: Place, session_id: str) -> list[Json]:
    shown = place.run("sessions", "show", session_id, "--json")
    assert shown.status == 0, shown.err
    return list(json.loads(shown.out)["items"])


def check(place: Place, status: int, part: str, *arguments: str) -> None:
    """Expect a refusal that says something, and no trace."""
    done = place.run("sessions", *arguments)
    assert (done.status, done.out) == (status, ""), (arguments, done)
    assert part in done.err, arguments
    assert done.err.startswith("scv: "), arguments


def test_search_names_session_and_item(place: Place) -> None:
    session_id = talk(place, "run echo needle-in-hay")
    talk(place, "help")

    shown = place.run("sessions", "search", "NEEDLE-in")
    hits = json.loads(place.run("sessions", "search", "needle-in", "--json").out)
    none = place.run("sessions", "search", "absent-word")

    assert (shown.status, shown.err) == (0, "")
    assert session_id in shown.out
    assert "needle-in-hay" in shown.out
    assert {hit["sessionId"] for hit in hits["hits"]} == {session_id}
    named = {hit["itemId"] for hit in hits["hits"] if "itemId" in hit}
    assert named
    assert named <= {item["id"] for item in items(place, session_id)}
    assert (none.status, none.out) == (1, "")
    few = place.run("sessions", "search", "e", "--limit", "1")
    assert "--limit" in few.err


def test_fork_copies_up_to_an_item(place: Place) -> None:
    session_id = talk(place, "run echo one")
    first = items(place, session_id)[0]["id"]

    whole = place.run("sessions", "fork", session_id[:-3])
    part = place.run(
        "sessions", "fork", session_id, "--at", first, "--title", "the other way"
    )

    assert (whole.status, part.status) == (0, 0), whole.err + part.err
    assert items(place, whole.out.strip()) == items(place, session_id)
    assert [each["id"] for each in items(place, part.out.strip())] == [first]
    titles = {each["id"]: each["title"] for each in sessions(place)}
    assert titles[part.out.strip()] == "the other way"
    check(place, 1, "item", "fork", session_id, "--at", "i_none")
    check(place, 1, "no session", "fork", "s_none")


def test_delete_without_a_terminal_needs_yes_and_a_whole_id(place: Place) -> None:
    session_id = talk(place, "help")

    check(place, 2, "--yes", "delete", session_id)
    check(place, 2, session_id, "delete", session_id[:-3], "--yes")
    check(place, 1, "empty id", "delete", "", "--yes")
    assert [each["id"] for each in sessions(place)] == [session_id]
    done = place.run("sessions", "delete", session_id, "--yes")

    assert (done.status, done.err) == (0, "")
    assert sessions(place) == []
    check(place, 1, "no session", "delete", session_id, "--yes")


def test_delete_asks_in_a_terminal(place: Place) -> None:
    session_id = talk(place, "help")

    def delete(keys: str) -> int:
        command = ("sessions", "delete", session_id[:-3])
        with Terminal(place, *command) as terminal:
            shown = terminal.wait_for("Type yes:")
            assert session_id in shown
            terminal.type(keys)
            return terminal.wait_for_end()

    assert delete("no" + ENTER) == 1
    assert delete(CTRL_C) == 130
    assert [each["id"] for each in sessions(place)] == [session_id]
    assert delete("yes" + ENTER) == 0
    assert sessions(place) == []


def test_export_is_private_and_replaces_nothing(place: Place) -> None:
    session_id = talk(place, "help")
    taken = place.workspace / "taken"
    taken.write_text("mine")

    done = place.run("sessions", "export", session_id, "kept.jsonl")

    assert (done.status, done.err) == (0, "")
    kept = place.workspace / "kept.jsonl"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    head = json.loads(kept.read_text().splitlines()[0])
    assert head["session"]["id"] == session_id
    check(place, 1, "exists", "export", session_id, "taken")
    check(place, 1, "none/x", "export", session_id, "none/x")
    assert taken.read_text() == "mine"


def test_import_makes_the_same_session_in_another_home(place: Place) -> None:
    session_id = talk(place, "run seq 400000")  # its output travels in chunks
    told = items(place, session_id)
    exported = place.run("sessions", "export", session_id, "kept.jsonl")
    assert exported.status == 0, exported.err
    assert (place.workspace / "kept.jsonl").stat().st_size > 2 * 1024 * 1024
    other = Place(
        place.home.parent / "other",
        place.workspace,
        {"SCV_HOME": str(place.home.parent / "other")},
    )

    done = other.run("sessions", "import", "kept.jsonl")

    assert (done.status, done.err) == (0, "")
    [only] = sessions(other)
    assert (only["id"], only["title"]) == (done.out.strip(), "run seq 400000")
    assert items(other, only["id"]) == told


def test_import_of_anything_else_leaves_nothing(place: Place) -> None:
    (place.workspace / "wrong").write_text("{}\n")
    with open(place.workspace / "large", "wb") as file:
        os.truncate(file.fileno(), 16 * 1024 * 1024 + 1)

    check(place, 1, "no exported session", "import", "wrong")
    check(place, 1, "larger", "import", "large")
    check(place, 1, "absent", "import", "absent")

    assert sessions(place) == []


def test_show_reads_a_session_that_another_process_works_in(
    place: Place, model: ModelServer
) -> None:
    gate = threading.Event()
    model.say("first piece, ", "second piece", gate=gate)
    with place.start("exec", "hi there") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 4096) == b"first piece, "
        [lock] = (place.home / "state" / "locks").iterdir()
        owner = lock.read_text()

        shown = place.run("sessions", "show")

        assert (shown.status, shown.err) == (0, "")
        assert "> hi there" in shown.out
        assert lock.read_text() == owner
        check(place, 1, "", "delete", lock.name, "--yes", "--force")
        gate.set()
        assert process.stdout.read() == b"second piece\n"
        assert process.wait(WAIT_SECONDS) == 0
    assert "second piece" in place.run("sessions", "show").out
