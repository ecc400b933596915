"""What all tables share: headings, columns, bulleted notes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

_BOX: Final = box.SIMPLE_HEAD
_WIDEST: Final = 400


class _Whole(Table):
    """A table that is as wide as what stands in it, also where the terminal is narrower: cut figures are no figures."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = self.__rich_measure__(console, options.update(max_width=_WIDEST)).maximum
        yield from super().__rich_console__(console, options.update(max_width=max(options.max_width, needed)))


def heading(text: str) -> RenderableType:
    """A line across the terminal that begins a section."""
    return Group(Text(""), Rule(Text(text, style="bold"), align="left", style="dim", characters="─"))


def columns(*headings: tuple[str, str]) -> Table:
    """Columns of (heading, `l` or `r` for its side), each as wide as what stands in it."""
    table = _Whole(box=_BOX, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for text, side in headings:
        table.add_column(text, justify="right" if side == "r" else "left", no_wrap=True, vertical="bottom")
    return table


def bullets(lines: Iterable[str], style: str = "") -> RenderableType:
    """Paragraphs that wrap under themselves."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    for line in lines:
        table.add_row(Text("•", style=style or "dim"), Text(line, style=style))
    return table
