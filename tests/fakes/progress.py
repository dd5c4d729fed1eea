"""A listener for calls whose progress nobody looks at."""


class Silent:
    """Hears nothing."""

    def output(self, text: str) -> None:
        """Ignore the newest output."""

    def process(self, pid: int) -> None:
        """Ignore a process."""
