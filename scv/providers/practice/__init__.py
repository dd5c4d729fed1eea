"""The practice model: a small deterministic stand-in that ships with SCV.

It is no language model and says so. It is a real HTTP server on loopback that
speaks the Responses wire, so what works with it works through the same code as
a paid model. Without a script it understands the commands of `commands.py`;
with one it plays recorded responses, paced and with faults (`script.py`).
"""
