from __future__ import annotations

from tests.unit.observe.recordings import ROOT

from equipoise.observe.document import render


def test_the_page_of_queries_is_what_the_tables_say() -> None:
    page = (ROOT / "docs" / "reference" / "queries.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m equipoise.observe.document > docs/reference/queries.md"
