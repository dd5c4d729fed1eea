"""The end of a growing text, cut to what fits: what is drawn for every delta."""


def tail_lines(text: str, columns: int, rows: int) -> list[str]:
    """Wrap the end of an inert text and return its last rows.

    Looks only at as much text as can be visible, so the cost does not grow.
    """
    from prompt_toolkit.utils import get_cwidth

    visible: list[str] = []
    for line in text[-columns * rows :].replace("\t", "    ").split("\n"):
        width = 0
        start = 0
        for position, character in enumerate(line):
            step = get_cwidth(character)
            if width + step > columns:
                visible.append(line[start:position])
                start, width = position, 0
            width += step
        visible.append(line[start:])
    return visible[-rows:]
