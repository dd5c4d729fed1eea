"""Blobs: bytes kept under their content."""

import os
import re
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from scv.errors import NotFound, StoreError
from scv.store import open_store

pytestmark = pytest.mark.anyio


async def test_a_blob_is_read_in_slices_after_a_restart(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    async with open_store(str(tmp_path)) as store:
        blob = await store.put_blob(data, "image/png", "s_1")
        empty = await store.put_blob(b"", "text/plain", "s_1")
    async with open_store(str(tmp_path)) as store:
        whole = await store.read_blob(blob, offset=0, limit=10**9)
        part = await store.read_blob(blob, offset=299_990, limit=100)
        behind = await store.read_blob(blob, offset=10**9, limit=100)

        assert whole == (data, 300_000, "image/png")
        assert part == (data[-10:], 300_000, "image/png")
        assert behind == (b"", 300_000, "image/png")
        assert await store.read_blob(empty, offset=0, limit=1) == (b"", 0, "text/plain")
    assert re.fullmatch(r"b_[0-9a-f]{40}", blob)


async def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        names = []

        async def put(mime_type: str, session_id: str) -> None:
            names.append(await store.put_blob(b"same", mime_type, session_id))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(put, "text/plain", f"s_{number % 2}")
        await put("image/png", "s_1")
        assert len(set(names[:8])) == 1
        assert names[8] != names[0]
        assert (await store.read_blob(names[8], offset=0, limit=9))[2] == "image/png"

    files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    digest = sha256(b"same").hexdigest()
    assert files == [tmp_path / "blobs" / digest[:2] / digest]


async def test_an_unknown_or_lost_blob_is_not_found(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        with pytest.raises(NotFound):
            await store.read_blob("b_" + "0" * 40, offset=0, limit=1)
        blob = await store.put_blob(b"data", "text/plain", "s_1")
        (tmp_path / "blobs").rename(tmp_path / "gone")
        with pytest.raises(NotFound):
            await store.read_blob(blob, offset=0, limit=1)


async def test_a_blob_that_cannot_be_written_is_an_error_with_its_path(
    tmp_path: Path,
) -> None:
    (tmp_path / "blobs").write_text("in the way")
    async with open_store(str(tmp_path)) as store:
        with pytest.raises(StoreError) as refused:
            await store.put_blob(b"data", "text/plain", "s_1")

    assert str(tmp_path / "blobs") in refused.value.message
