"""Pod templates that stay as they are until the user changes something.

A new release of Equipoise may render better defaults, and a queue bound or a start-up budget may be computed anew. None of that
may restart a running model. So each Deployment carries the pod template of its revision in an annotation; while the revision
is the same, that template is sent again, whatever the renderer would write today. Being our own record and not the live object,
it also undoes edits by others. Placement (node selector, tolerations) always follows the pool: new pods must be able to land.

New Deployments of a running revision take image and compatibility flags from their siblings, because engines of different
versions, attention backends or KV types refuse each other's KV (vLLM's NIXL handshake).
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from equipoise.api import labels
from equipoise.render.flags import Flag, parse_flags, tokens
from equipoise.render.hashing import canonical

TEMPLATE: Final = "equipoise.dev/template"
ENGINE: Final = "engine"
COMPATIBILITY_FLAGS: Final = frozenset({"dtype", "kv-cache-dtype", "attention-backend"})
_PLACEMENT: Final = ("nodeSelector", "tolerations")


def freeze(template: Mapping[str, Any]) -> str:
    """A template as annotation text."""
    return base64.b64encode(zlib.compress(canonical(template).encode("ascii"), 9)).decode("ascii")


def thaw(text: str) -> dict[str, Any] | None:
    """The template of an annotation; None for text that `freeze` did not write: then the template is rendered afresh."""
    try:
        value = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    except (binascii.Error, zlib.error, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("spec"), dict) else None


def frozen_template(live: Mapping[str, Any], revision: str) -> tuple[dict[str, Any], str] | None:
    """The template of that revision that a live Deployment carries, and its annotation text; None when it carries another."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(TEMPLATE)
    template = thaw(text) if isinstance(text, str) else None
    if template is None or _revision(template) != revision:
        return None
    return template, str(text)


def keep_template(rendered: dict[str, Any], live: Mapping[str, Any] | None, revision: str) -> tuple[dict[str, Any], str]:
    """The template to send and the annotation that goes with it: the live Deployment's own where the revision is the same."""
    kept = frozen_template(live, revision) if live is not None else None
    if kept is None:
        return rendered, freeze(rendered)
    template, text = kept
    spec = {**template["spec"], **{name: rendered["spec"][name] for name in _PLACEMENT if name in rendered["spec"]}}
    changed = spec != template["spec"]
    template = {**template, "spec": spec}
    return template, freeze(template) if changed else text


def match_siblings(rendered: dict[str, Any], siblings: Iterable[Mapping[str, Any]], revision: str) -> dict[str, Any]:
    """The rendered template with image and compatibility flags of the first sibling that runs the same revision."""
    for sibling in siblings:
        kept = frozen_template(sibling, revision)
        running = engine_container(kept[0]) if kept else None
        own = engine_container(rendered)
        if running is None or own is None:
            continue
        wanted = parse_flags(own.get("args") or ())
        theirs = {flag.key: flag for flag in parse_flags(running.get("args") or ()) if flag.key in COMPATIBILITY_FLAGS}
        container = {**own, "image": running["image"], "args": tokens(_with_flags(wanted, theirs))}
        containers = [container if item is own else item for item in rendered["spec"]["containers"]]
        return {**rendered, "spec": {**rendered["spec"], "containers": containers}}
    return rendered


def engine_container(template: Mapping[str, Any]) -> dict[str, Any] | None:
    """The engine's container of a template."""
    return next((item for item in template["spec"].get("containers") or () if item.get("name") == ENGINE), None)


def _with_flags(wanted: list[Flag], theirs: Mapping[str, Flag]) -> list[Flag]:
    result = [theirs.get(flag.key, flag) for flag in wanted if flag.key not in COMPATIBILITY_FLAGS or flag.key in theirs]
    present = {flag.key for flag in result}
    return result + [flag for key, flag in sorted(theirs.items()) if key not in present]


def _revision(template: Mapping[str, Any]) -> str:
    return str(((template.get("metadata") or {}).get("labels") or {}).get(labels.REVISION, ""))
