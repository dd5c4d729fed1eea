"""Floor *http*: a script that reads one streamed answer with httpx and prints it."""

import json
import sys

import httpx

url, token, text = sys.argv[1:]
with (
    httpx.Client(timeout=60) as client,
    client.stream(
        "POST",
        f"{url}/responses",
        headers={"Authorization": f"Bearer {token}"},
        json={
            "model": "m",
            "stream": True,
            "input": [{"role": "user", "content": text}],
        },
    ) as response,
):
    for line in response.iter_lines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if event["type"] == "response.output_text.delta":
                sys.stdout.write(event["delta"])
                sys.stdout.flush()
