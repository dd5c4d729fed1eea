"""SCV: a coding-agent backend for people who live in their editor."""

__version__ = "0.1.0"
