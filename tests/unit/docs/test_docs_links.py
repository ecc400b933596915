"""Links lead somewhere, and every command of make that a page mentions exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import PAGES, ROOT, anchors, links, text_of

_MAKE = re.compile(r"\bmake ([a-z][a-z0-9-]*)\b")


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            broken.append(link)
    assert broken == []


def test_links_stay_inside_the_repository() -> None:
    outside = [
        (_id(page), link)
        for page in PAGES
        for link in links(page)
        if not (page.parent / link.partition("#")[0]).resolve().is_relative_to(ROOT)
    ]
    assert outside == []


def test_every_make_target_that_is_mentioned_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    mentioned = {
        name: _id(page)
        for page in PAGES
        for code in re.findall(r"^```.*?^```$|`[^`\n]+`", text_of(page), re.MULTILINE | re.DOTALL)
        for name in _MAKE.findall(code)
    }
    assert {"demo", "test"} <= mentioned.keys()
    assert {name: page for name, page in mentioned.items() if name not in targets} == {}


def test_the_index_lists_every_decision() -> None:
    index = text_of(ROOT / "docs" / "README.md")
    assert [path.name for path in (ROOT / "docs" / "decisions").glob("*.md") if f"decisions/{path.name}" not in index] == []
