"""Writes what is generated from the types: `python -m equipoise.api.generate crds` from the root of the repository."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from equipoise.api.crd import RESOURCES, definition
from equipoise.api.reference import page

_HEADER: Final = "# Generated from operator/equipoise/api by `make crds`; do not edit.\n"
REFERENCE: Final = Path("docs/reference/api.md")


def crd_files() -> Mapping[str, str]:
    """File names and texts of all CRDs."""
    return {
        resource.file_name: _HEADER
        + yaml.dump(definition(resource), Dumper=_Plain, sort_keys=False, width=130, allow_unicode=True)
        for resource in RESOURCES
    }


class _Plain(yaml.SafeDumper):
    """Writes every value out: anchors are legal YAML, but tools that read CRDs line by line trip over them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: list[str]) -> int:
    """Write the CRDs to the folder named, and the reference page to docs/reference beside it; the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m equipoise.api.generate CRD_FOLDER (such as: crds)\n")
        return 2
    folder = Path(arguments[0])
    reference = folder.resolve().parent / REFERENCE
    for path, text in [*((folder / name, text) for name, text in crd_files().items()), (reference, page())]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
