"""The protocol's vocabulary: types, methods and error codes of SCV/1.

Types are TypedDicts: a message is the dict that travels, so nothing is built
or copied on the way, and one declaration serves type checker, validation and
schema.
"""

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0
