"""A blocking client for the server under test and for the *lsp* floor."""

import itertools
import json
import os
import subprocess
import time
import uuid


class Client:
    """Starts a command that speaks Content-Length frames and talks to it."""

    def __init__(self, argv, environment):
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            env=environment,
        )
        self._ids = itertools.count(1)
        self._output = os.fdopen(os.dup(self.process.stdout.fileno()), "rb", 2**20)
        self.seen = []

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while (line := self._output.readline()) != b"\r\n":
            if not line:
                raise EOFError("the server ended")
            length = int(line.split(b":")[1])
        return json.loads(self._output.read(length))

    def request(self, method, params, *, on_message=None):
        number = next(self._ids)
        self.send({"id": number, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]
            self.seen.append(message)
            if on_message:
                on_message(message)

    def next(self):
        """Return what came while a request waited, then what comes."""
        return self.seen.pop(0) if self.seen else self.receive()

    def close(self):
        self.process.stdin.close()
        self._output.read()
        self.process.stdout.close()
        self._output.close()
        return self.process.wait(60)


class Scv(Client):
    """SCV/1: handshake, one session, turns whose questions are allowed at once."""

    def handshake(self):
        scv = {
            "protocol": {"major": 1, "minor": 0},
            "clientId": "bench",
            "features": {"events": True, "approvals": True},
        }
        result = self.request(
            "initialize", {"capabilities": {"experimental": {"scv": scv}}}
        )
        self.send({"method": "initialized", "params": {}})
        return result

    def act(self, method, **params):
        return self.request(method, {"opId": uuid.uuid4().hex, **params})

    def create(self, root):
        created = self.act("scv/session/create", workspace={"root": root})
        return created["session"]["id"]

    def start(self, session_id, text):
        part = {"type": "text", "text": text}
        return self.act("scv/turn/start", sessionId=session_id, input=[part])

    def events(self):
        """Yield events as they come; answers questions with `allow once`."""
        while True:
            message = self.next()
            if message.get("method") == "scv/approval/request":
                answer = {"optionId": "once", "digest": message["params"]["digest"]}
                self.send({"id": message["id"], "result": answer})
            yield from message.get("params", {}).get("events", ())

    def until(self, kind):
        for event in self.events():
            if event["type"] == kind:
                return event

    def turn(self, session_id, text):
        self.start(session_id, text)
        return self.until("turn.ended")
