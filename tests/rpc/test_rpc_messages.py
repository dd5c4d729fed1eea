"""The envelope: what is taken, what is refused, and with which code and id."""

import json
from typing import Any

import pytest

from scv.rpc import BadMessage, encode_json, parse_message


def check(body: bytes | str, code: int, id: Any = None) -> BadMessage:
    """See a body refused."""
    with pytest.raises(BadMessage) as caught:
        parse_message(body.encode() if isinstance(body, str) else body)
    assert (caught.value.code, caught.value.id) == (code, id)
    return caught.value


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    """Write a message that nests so deep, its own object counted."""
    inner = opening * (depth - 1) + closing * (depth - 1)
    return f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{inner}}}'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        '{"jsonrpc":"2.0",',
        "{}{}",
        "\ufeff{}",
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '{"a":' + "9" * 5000 + "}",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        "{}".encode("utf-16"),
        "{'a':1}",
        '{"a":"\n"}',
    ],
)
def test_what_is_not_json_in_utf_8_is_a_parse_error(body: bytes | str) -> None:
    check(body, -32700)


@pytest.mark.parametrize("body", ["[]", "1", '"x"', "null", "true", '[{"id":1}]'])
def test_what_is_no_object_is_refused(body: str) -> None:
    check(body, -32600)


@pytest.mark.parametrize("id", [None, True, False, 1.0, 1.5, [], {}, "x" * 257, 2**63])
def test_an_id_that_is_no_string_or_integer_is_refused(id: Any) -> None:
    check(json.dumps({"jsonrpc": "2.0", "id": id, "method": "m"}), -32600)


@pytest.mark.parametrize("id", [0, "", -1, 7, "0", "x" * 256, 2**63 - 1])
def test_an_odd_but_legal_id_is_kept_as_it_is(id: Any) -> None:
    message = {"jsonrpc": "2.0", "id": id, "method": "m"}

    assert parse_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "m"},
        {"method": "m", "jsonrpc": "1.0"},
        {"method": "m", "jsonrpc": 2.0},
        {"method": 1, "jsonrpc": "2.0"},
        {"method": None, "jsonrpc": "2.0"},
        {"method": "m", "jsonrpc": "2.0", "params": None},
        {"method": "m", "jsonrpc": "2.0", "params": "x"},
        {"method": "m", "jsonrpc": "2.0", "params": 0},
    ],
)
def test_a_broken_envelope_is_refused_under_its_own_id(fields: dict[str, Any]) -> None:
    check(json.dumps({"id": 7, **fields}), -32600, 7)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        ('{"id":3,"result":1}', 3),
        ('{"jsonrpc":"2.0","result":1}', None),
        ('{"jsonrpc":"2.0","id":3.0,"result":1}', None),
    ],
)
def test_a_broken_answer_is_known_as_one(body: str, id: Any) -> None:
    assert check(body, -32600, id).is_answer


def test_an_error_without_id_is_an_answer() -> None:
    message = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700}}

    assert parse_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_bounded_at_64(opening: str, closing: str) -> None:
    def body(depth: int) -> str:
        return nested(depth, opening, closing).replace(":}", ":0}")

    assert parse_message(body(64).encode())["method"] == "m"
    check(body(65), -32600)
    check(body(900), -32600)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_hundred_thousand_brackets_do_no_harm(opening: str) -> None:
    check(opening * 100_000, -32600)
    check(nested(100_000), -32600)


def test_brackets_in_strings_and_in_a_row_do_not_count_as_nesting() -> None:
    message = {"jsonrpc": "2.0", "method": "m", "params": ["[" * 1000, *[[]] * 1000]}

    assert parse_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\ud83c\udf78", "🍸"),
        (r"\ud83c", "\ufffd"),
        (r"\udf78\uD83C", "\ufffd\ufffd"),
        (r"a\uD83cb\ud83c\udf78", "a\ufffdb🍸"),
        (r"\\ud83c", r"\ud83c"),
        (r"\u0000", "\0"),
    ],
)
def test_lone_surrogates_become_replacement_characters(escaped: str, text: str) -> None:
    body = f'{{"jsonrpc":"2.0","method":"m","params":["{escaped}",{{"{escaped}":0}}]}}'

    message = parse_message(body.encode())

    assert message["params"] == [text, {text: 0}]
    assert json.loads(encode_json(message)) == message


def test_text_of_the_system_that_is_no_unicode_can_be_sent() -> None:
    name = b"caf\xe9 \xf0\x9f\x8d\xb8".decode("utf-8", "surrogateescape")

    assert encode_json([name]).decode() == '["caf\ufffd 🍸"]'


def test_numbers_that_json_lacks_are_not_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_json(float("nan"))
