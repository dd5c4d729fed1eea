"""Search: what is found, what a hit shows, and an index that comes back by itself."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from scv.core.records import Hit, ItemRecord, ItemsCut
from scv.store import SqliteStore, open_store
from tests.store import sample
from tests.store.test_processes import ROOT, line, start
from tests.store.test_upkeep import QUIET_SECONDS, wait_for

pytestmark = pytest.mark.anyio

LONG = 1 << 20


async def items_of(store: SqliteStore, text: str, **where: object) -> list[str]:
    """Search; return the ids of the items, or of the sessions whose title is hit."""
    hits = await store.search(text, **where)  # type: ignore[arg-type]
    return [hit.item_id or hit.session_id for hit in hits]


async def one(tmp_path: Path, text: str, query: str) -> list[Hit]:
    """Search one message."""
    async with open_store(str(tmp_path)) as store:
        await store.commit(
            (sample.session("s_1", title=""), sample.answer("i_1", "s_1", 1, text))
        )
        return await store.search(query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("call fixLoginPage() now", "Page"),
        ("call fixLoginPage() now", "PAGE fixlogin"),
        ("昨日東京都へ行きました。", "東京"),
        ("昨日東京都へ行きました。", "京都"),
        ("昨日東京都へ行きました。", "行き"),
        ("昨日東京都へ行きました。", "東京都へ行きました"),
        ("昨日東京都へ行きました。", "昨"),
        ("我们在北京大学学习", "大学"),
        ("请修复登录页面的错误", "页面 登录"),
        ("データベースのエラー", "エラ"),
        ("데이터베이스 오류입니다", "오류"),
        ("5月3日に", "5月"),
        ("Die Straße war GROẞ", "strasse"),
        ("STRASSE", "straße"),
        ("ΟΔΟΣ", "οδος"),
        ("İstanbul", "stanbul"),
        ("it is so", "IS"),
        ("x", "x"),
        ("a.b->c", "->c"),
        ("tail of a word", "rd"),
        ("emoji 😀😀 here", "😀"),
        ("line one\nline two", "one two"),
        ("nul\x00byte", "byte"),
        ("lone \ud800 surrogate", "surrogate"),
        ("same same same", "same SAME"),
        ("x" * 3000, "x" * 2000),
    ],
)
async def test_what_is_found(tmp_path: Path, text: str, query: str) -> None:
    assert [hit.item_id for hit in await one(tmp_path, text, query)] == ["i_1"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("login page", "logout"),
        ("login page", "login logout"),
        ("登录页面", "页登"),
        ("東京と大阪京", "東大"),
        ("page", ""),
        ("page", "  \n "),
        ("abcdef", "abc*"),
        ("abc def", "abcd"),
        ("abcXbcd", "abcd"),
        ("page login", "page OR missing"),
        ("100 of 5", "10%"),
        ("a1b", "a_b"),
        ("text", "text:page"),
    ],
)
async def test_what_is_not_found(tmp_path: Path, text: str, query: str) -> None:
    assert await one(tmp_path, text, query) == []


@pytest.mark.parametrize(
    "query",
    [
        *('"', '""', '"page', "page*", "pa%", "(page", "NOT page", "^page", "a AND b"),
        *("NEAR(a b, 3)", "col:page", "{x}:y", "-page", "page + x", "';--", "%", "_"),
        *("\x00", "\ud800", "a\x00b", "\u202e", "page OR", "*", "東*", '東"', "\\"),
    ],
)
async def test_a_query_is_plain_text_whatever_is_in_it(
    tmp_path: Path, query: str
) -> None:
    async with open_store(str(tmp_path)) as store:
        plain = sample.answer("i_1", "s_1", 1, "nothing of this, 東西 page col a b x y")
        quoted = sample.prompt("i_2", "s_1", 2, f"here: {query} it is")
        await store.commit((sample.session("s_1"), plain, quoted))
        found = await items_of(store, query)

    wanted = query.replace("\x00", " ").split()
    if wanted:
        assert "i_2" in found
    else:
        assert found == []
    if any(mark in query for mark in '"*%(^{+;_\\'):
        assert "i_1" not in found


async def test_random_text_is_found_as_a_plain_search_finds_it(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    letters = 'abAB ."*_%éÉßΣς東京都が𠮷\n'
    texts = {
        f"i_{number:03}": "".join(chance.choices(letters, k=chance.randrange(1, 60)))
        for number in range(150)
    }
    async with open_store(str(tmp_path)) as store:
        store.enqueue((sample.session("s_1", title=""),))
        for number, (name, text) in enumerate(texts.items()):
            store.enqueue((sample.answer(name, "s_1", number, text, number),))
        for _ in range(200):
            query = "".join(chance.choices(letters, k=chance.randrange(1, 6)))
            words = query.casefold().split()
            expected = [
                name
                for name, text in texts.items()
                if words and all(word in text.casefold() for word in words)
            ]
            assert await items_of(store, query, limit=500) == expected[::-1], query


async def test_only_prompts_answers_and_titles_are_searched(tmp_path: Path) -> None:
    prompt = sample.prompt("i_1", "s_1", 1, "needle")
    prompt.body["parts"] += [
        {"type": "selection", "text": "needle2"},
        {"type": "x", "text": 7},
        None,
    ]
    call = ItemRecord("i_2", "s_1", "t_1", 2, "tool_call", {"output": "needle"})
    thought = replace(sample.answer("i_3", "s_1", 3, "needle"), kind="reasoning")
    running = sample.item("i_4", "s_1", 4, "in_progress")
    running.body["text"] = "needle"
    failed = sample.answer("i_5", "s_1", 5, "needle", sample.NOW + 1)
    failed.body["status"] = "failed"
    odd = sample.answer("i_6", "s_1", 6, "needle")
    odd.body["createdAt"] = "yesterday"
    async with open_store(str(tmp_path)) as store:
        title = sample.session("s_1", title="the needle", created_at=sample.NOW + 9)
        await store.commit((title, prompt, call, thought, running, failed, odd))

        assert await items_of(store, "needle") == ["s_1", "i_5", "i_1", "i_6"]
        assert await items_of(store, "needle2") == ["i_1"]
        await store.commit((replace(title, title="a haystack"),))
        assert await items_of(store, "needle") == ["i_5", "i_1", "i_6"]
        assert await items_of(store, "haystack") == ["s_1"]


async def test_hits_come_newest_first_in_pages_and_by_workspace(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for session in range(4):
            name = f"s_{session}"
            store.enqueue((sample.session(name, title="", root=f"/srv/{session % 2}"),))
            for number in range(10):
                at = (session * 7 + number * 3) % 11  # many at the same time
                item = sample.prompt(f"i_{number}", name, number, "find me", at)
                store.enqueue((item,))
        whole = await store.search("find", limit=100)
        paged: list[Hit] = []
        before: tuple[int, str] | None = None
        while page := await store.search("find", limit=7, before=before):
            paged += page
            before = (page[-1].at, f"{page[-1].session_id}/{page[-1].item_id}")
        below = await store.search("find", root="/srv/1", limit=100)

        assert len(whole) == 40
        assert [hit.at for hit in whole] == sorted((h.at for h in whole), reverse=True)
        assert paged == whole
        assert below == [hit for hit in whole if hit.session_id in ("s_1", "s_3")]
        assert await store.search("find", root="/srv") == []
        assert await store.search("find", limit=0) == []


async def test_a_snippet_is_one_line_around_the_whole_hit(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(100))
    text = f"{words}\n\n\tHERE it \x1b[31mis\u202e\n{words}"
    (hit,) = await one(tmp_path, text, "here")

    assert "word98 word99 HERE it [31mis word0 word1" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert 70 <= len(hit.snippet) <= 82
    assert hit.snippet.isprintable()


@pytest.mark.parametrize(
    ("text", "query", "snippet"),
    [
        ("short", "or", "short"),
        ("  spaces   around  ", "around", "spaces around"),
        ("İİİ Straße, viele", "strasse", "İİİ Straße, viele"),
        ("a " * 100 + "end", "end", "…" + "a " * 38 + "end"),
        ("start" + " b" * 100, "start", "start" + " b" * 37 + " …"),
        ("東" * 100, "東" * 90, "東" * 90 + "…"),
    ],
)
async def test_a_snippet_shows_what_was_written(
    tmp_path: Path, text: str, query: str, snippet: str
) -> None:
    (hit,) = await one(tmp_path, text, query)

    assert hit.snippet.replace("… ", "…") == snippet.replace("… ", "…")


async def test_a_long_answer_is_found_from_beginning_to_end(tmp_path: Path) -> None:
    chance = random.Random(1)
    words = [f"w{chance.randrange(10**6):06}" for _ in range(LONG // 8)]
    words[0], words[LONG // 16], words[-1] = "alphaWord", "middleWord", "omegaWord"
    text = " ".join(words)
    async with open_store(str(tmp_path)) as store:
        blob_id = await store.put_blob(text.encode(), "text/plain", "s_1")
        answer = sample.answer("i_1", "s_1", 1, f"{text[:9]} … {text[-9:]}")
        answer.body["blobId"] = blob_id
        await store.commit((sample.session("s_1"), answer))

        assert await items_of(store, "omegaword MIDDLEWORD alphaword") == ["i_1"]
        (hit,) = await store.search("middleWord")
        assert "middleWord" in hit.snippet
        for place in range(100, len(words), 1000):
            assert await items_of(store, " ".join(words[place : place + 2])) == ["i_1"]
        await store.delete_session("s_1")
        assert await items_of(store, "middleWord") == []


async def test_what_is_cut_away_is_found_no_more(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        store.enqueue((sample.session("s_1", title=""),))
        for number in range(1, 6):
            store.enqueue((sample.prompt(f"i_{number}", "s_1", number, "needle"),))
        assert len(await items_of(store, "needle")) == 5
        await store.commit((ItemsCut("s_1", 2),))

        assert await items_of(store, "needle") == ["i_2", "i_1"]


async def test_what_is_written_is_indexed_while_nobody_waits(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        await store.commit(
            (sample.session("s_1"), sample.prompt("i_1", "s_1", 1, "needle"))
        )

        def is_indexed() -> bool:
            for path in tmp_path.glob("search-*.db"):
                with closing(sqlite3.connect(path)) as connection:
                    with suppress(sqlite3.OperationalError):  # not yet
                        query = "SELECT count(*) FROM document"
                        return bool(connection.execute(query).fetchone()[0] == 2)
            return False

        await wait_for(is_indexed, 5 * 2 * QUIET_SECONDS)
        assert await items_of(store, "needle") == ["i_1"]


@pytest.mark.parametrize(
    "damage", ["gone", "empty", "junk", "head", "pages", "tables", "layout", "cut"]
)
async def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: str) -> None:
    async with open_store(str(tmp_path)) as store:
        store.enqueue((sample.session("s_1", title="the needle"),))
        for number in range(1, 200):
            text = f"needle <{number}> 東京 " + os.urandom(200).hex()
            store.enqueue((sample.prompt(f"i_{number}", "s_1", number, text),))
        assert len(await items_of(store, "needle", limit=500)) == 200
        (path,) = tmp_path.glob("search-*.db")
        data = bytearray(path.read_bytes())
        match damage:
            case "gone":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "junk":
                path.write_bytes(os.urandom(len(data)))
            case "head":
                data[:100] = bytes(100)
                path.write_bytes(data)
            case "pages":
                data[4096:] = b"\x5a" * (len(data) - 4096)
                path.write_bytes(data)
            case "cut":
                path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
            case "tables":
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("DROP TABLE three")
            case "layout":
                name = path.rename(tmp_path / "search-0-0123.db").name
                with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
                    connection.execute(
                        "UPDATE meta SET value=? WHERE key='index'", (name,)
                    )
                    connection.commit()

        assert len(await items_of(store, "needle", limit=500)) == 200
        assert await items_of(store, "needle <77> 東京") == ["i_77"]
        assert not path.exists()
        assert len(list(tmp_path.glob("search-*.db"))) == 1
        assert store.notices == [], "nothing that matters was lost"


async def test_a_salvaged_store_is_searched_whole(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 50):
            store.enqueue((sample.prompt(f"i_{number}", "s_1", number, "needle"),))
        await store.commit((sample.session("s_1"), sample.queue("s_1")))
        await store.commit((sample.audit(1, "s_1"),))
        assert len(await items_of(store, "needle")) == 49
    main = bytearray((tmp_path / "sessions.db").read_bytes())
    main[:100] = bytes(100)
    (tmp_path / "sessions.db").write_bytes(main)

    async with open_store(str(tmp_path)) as store:
        assert len(await items_of(store, "needle")) == 49
        loaded = await store.load("s_1")
        assert loaded is not None
        assert loaded.queue == sample.queue("s_1")
        assert await store.audit() == [sample.audit(1, "s_1")]
        assert len(store.notices) == 1


async def test_two_processes_search_while_another_writes(tmp_path: Path) -> None:
    count = 120
    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_1", title=""),))
        children = [start(tmp_path, "search", "s_1", str(count)) for _ in range(2)]
        for number in range(1, count + 1):
            text = f"fixLoginPage {number} " + "filler " * 200
            await store.commit(
                (sample.prompt(f"i_{number}", "s_1", number, text, number),)
            )
            if number % 10 == 0:
                assert len(await items_of(store, "loginpage", limit=500)) == number
        said = [line(child) for child in children]
        for child in children:
            child.communicate()

        assert said == [f"found {count}"] * 2
        assert [child.returncode for child in children] == [0, 0]
        assert store.notices == []
    assert len(list(tmp_path.glob("search-*.db"))) == 1


async def test_a_search_in_a_closed_or_closing_store_says_so(tmp_path: Path) -> None:
    from scv.errors import StoreError

    store = open_store(str(tmp_path))
    await store.commit((sample.session("s_1"),))
    await store.aclose()

    with pytest.raises(StoreError):
        await store.search("page")


async def test_closing_does_not_wait_for_a_long_backlog(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(300):
            text = os.urandom(20_000).hex()
            store.enqueue((sample.prompt(f"i_{number}", "s_1", number, text),))
        await store.commit((sample.session("s_1"),))
        await wait_for(
            lambda: bool(list(tmp_path.glob("search-*.db"))), 5 * 2 * QUIET_SECONDS
        )
        begin = time.monotonic()
    assert time.monotonic() - begin < 5 * 0.5, "all of it takes some seconds"


WITHOUT_FTS5 = """
import ctypes, sqlite3, sys, anyio
from scv.errors import StoreError
from scv.store import open_store
from tests.store import sample

library = ctypes.CDLL("libsqlite3.so.0")

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def drop(connection, message, api):
    kept = (ctypes.c_char_p * 2)(b"json_each", None)
    return library.sqlite3_drop_modules(ctypes.c_void_p(connection), kept)

assert library.sqlite3_auto_extension(drop) == 0
try:
    sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE t USING fts5(x)")
except sqlite3.OperationalError as error:
    assert "no such module" in str(error), error
else:
    print("SKIP")
    sys.exit()

async def main(folder):
    async with open_store(folder) as store:
        await store.commit((sample.session("s_2"), sample.prompt("i_2", "s_2", 1, "x")))
        for _ in range(2):
            try:
                await store.search("page")
            except StoreError as error:
                print(error.message)
        assert (await store.load("s_2")) is not None
        await store.delete_session("s_2")
        assert (await store.load("s_2")) is None
        assert store.notices == []

anyio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize("has_index", [False, True])
async def test_without_full_text_search_only_searching_fails(
    tmp_path: Path, has_index: bool
) -> None:
    if has_index:
        async with open_store(str(tmp_path)) as store:
            item = sample.prompt("i_1", "s_1", 1, "a page")
            await store.commit((sample.session("s_1"), item))
            assert await items_of(store, "page") == ["i_1"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FTS5, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.stdout == "SKIP\n" or "cannot open shared object" in done.stderr:
        pytest.skip("this Python's SQLite cannot be made to go without FTS5")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("FTS5") == 2
    if has_index:
        async with open_store(str(tmp_path)) as store:
            assert await items_of(store, "page") == ["i_1"]
