"""Floor *lsp*: the least an asyncio server does to stream a provider to its client.

Content-Length frames on stdio; `initialize` answers, `prompt` {url, token, text}
posts to the provider and sends one notification for each delta, then answers.
Standard library only.
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit


def send(message):
    body = json.dumps(message).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


async def prompt(params):
    url = urlsplit(params["url"])
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=2**24)
    body = json.dumps(
        {
            "model": "m",
            "stream": True,
            "input": [{"role": "user", "content": params["text"]}],
        }
    ).encode()
    writer.write(
        b"POST %s/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
        % (url.path.encode(), params["token"].encode(), len(body), body)
    )
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if event["type"] == "response.output_text.delta":
                send({"jsonrpc": "2.0", "method": "delta", "params": event["delta"]})
    writer.close()


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**23)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while header := await reader.readline():
        await reader.readline()
        message = json.loads(await reader.readexactly(int(header.split(b":")[1])))
        if message["method"] == "prompt":
            await prompt(message["params"])
        send({"jsonrpc": "2.0", "id": message["id"], "result": {}})


asyncio.run(main())
