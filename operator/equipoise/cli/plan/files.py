"""YAML that a user hands over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml


class PlanError(Exception):
    """The plan cannot be made. The message names the file or object, the field, what was found and what to do."""


def read_documents(path: Path, what: str) -> list[Any]:
    """All YAML (or JSON) documents of a file, `-` for standard input; empty ones are left out."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{what} {path}: {error.strerror or error}; give an existing file") from None
    except UnicodeDecodeError:
        raise PlanError(f"{what} {path}: no UTF-8 text; give a YAML file") from None
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except yaml.YAMLError as error:
        raise PlanError(f"{what} {path}: no YAML: {' '.join(str(error).split())}") from None
    if not documents:
        raise PlanError(f"{what} {path}: empty; it should hold {what}s" if what != "fleet" else f"fleet {path}: empty")
    return documents
