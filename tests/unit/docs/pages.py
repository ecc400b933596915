"""Reading the documentation: pages, links with their anchors, table rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def reference(name: str) -> str:
    return text_of(ROOT / "docs" / "reference" / name)


def links(page: Path) -> Iterator[str]:
    """Relative links of a page; those inside code are none."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text_of(page)))
    return (target for target in _LINK.findall(prose) if "://" not in target and not target.startswith("mailto:"))


def anchors(page: Path) -> set[str]:
    """Anchors of a page: those it sets itself, and those of its headings as GitHub makes them."""
    own = set(re.findall(r'<a id="([^"]+)">', text_of(page)))
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text_of(page)), re.MULTILINE)
    return own | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def rows(text: str) -> dict[str, list[str]]:
    """Rows of all tables whose first cell begins with a name in backticks, by that name."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        name = re.match(r"`([^`]+)`", cells[0]) if cells else None
        if name is not None:
            found[name[1]] = cells
    return found
