"""A provider that costs next to nothing: the last prompt says what it streams.

    say N            N deltas as fast as the reader takes them
    rate N R         N deltas, R a second, each the sending time in nanoseconds
    bash N COMMAND   N calls of bash, one for each request, then a word
    forever          deltas until the reader leaves

Prints its port, then serves Responses streams until it is ended.
"""

import asyncio
import json
import sys
import time


def event(kind, **fields):
    return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(text):
    return event("response.output_text.delta", output_index=0, delta=text)


def done(text, *items):
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    usage = {"input_tokens": 100, "output_tokens": 20}
    output = [message] if text else []
    return b"".join(
        event("response.output_item.done", output_index=n, item=item)
        for n, item in enumerate([*output, *items])
    ) + event(
        "response.completed", response={"output": [*output, *items], "usage": usage}
    )


def last_prompt(items):
    """The newest prompt's words, and how many tool results came after it."""
    results = 0
    for item in reversed(items):
        if item.get("role") == "user":
            content = item["content"]
            if not isinstance(content, str):
                content = content[0]["text"]
            return content.split(), results
        results += item.get("type") == "function_call_output"
    return ["say", "1"], results


async def stream(words, results, writer):
    if words[0] == "say":
        count = int(words[1])
        piece, batch = delta("tok "), 500
        for start in range(0, count, batch):
            writer.write(piece * min(batch, count - start))
            await writer.drain()
        writer.write(done("tok " * count))
    elif words[0] == "rate":
        text, start = "", time.monotonic()
        for number in range(int(words[1])):
            await asyncio.sleep(
                max(0, start + number / float(words[2]) - time.monotonic())
            )
            stamp = f"{time.monotonic_ns()} "
            text += stamp
            writer.write(delta(stamp))
        writer.write(done(text))
    elif words[0] == "bash":
        if results < int(words[1]):
            call = {
                "type": "function_call",
                "call_id": f"c{results}",
                "name": "bash",
                "arguments": json.dumps({"command": " ".join(words[2:])}),
            }
            writer.write(done("", call))
        else:
            writer.write(delta("done") + done("done"))
    else:
        while True:
            writer.write(delta("tok "))
            await writer.drain()
            await asyncio.sleep(0.002)


class Chunks:
    """A writer of an answer in HTTP chunks, which lets the connection go on."""

    def __init__(self, writer):
        self._writer = writer
        self.drain = writer.drain

    def write(self, data):
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))


class Sizes:
    first_body = 0


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = await reader.readexactly(length)
            if head.startswith(b"GET /size"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%d" % Sizes.first_body
                )
                break
            Sizes.first_body = Sizes.first_body or len(body)
            is_last = b"connection: close" in head.lower()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                + (b"Connection: close" if is_last else b"Transfer-Encoding: chunked")
                + b"\r\n\r\n"
            )
            words, results = last_prompt(json.loads(body)["input"])
            await stream(words, results, writer if is_last else Chunks(writer))
            if is_last:
                break
            writer.write(b"0\r\n\r\n")
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3600)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (KeyboardInterrupt, TimeoutError):
        sys.exit(0)
