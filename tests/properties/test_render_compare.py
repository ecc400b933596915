"""Comparison and digests on arbitrary objects: what the API server adds is no difference, what anybody changes is one."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.render.differs import differences, differs
from equipoise.render.hashing import canonical, digest
from equipoise.render.merge import overlay_object

_key = st.sampled_from(["spec", "template", "image", "a", "b", "c", "args"])
_scalar = st.one_of(st.integers(1, 10**6), st.sampled_from(["x", "y", "1Gi", "True"]), st.just(True))
_named = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("pqrst"), "value": _scalar}), max_size=4, unique_by=lambda item: item["name"]
)
_object = st.recursive(
    st.dictionaries(_key, _scalar, min_size=1, max_size=4),
    lambda inner: st.dictionaries(_key, st.one_of(_scalar, inner, st.lists(_scalar, max_size=3)), min_size=1, max_size=4).flatmap(
        lambda found: _named.map(lambda items: {**found, "env": items})
    ),
    max_leaves=8,
)


def _defaulted(value: Any, draw: Any) -> Any:
    """As the API server returns it: more fields everywhere, more items in named lists, in another order."""
    if isinstance(value, dict):
        result = {key: _defaulted(inner, draw) for key, inner in value.items() if inner not in ([], None)}
        return {**result, "defaulted": draw(_scalar)}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return draw(st.permutations([*(_defaulted(item, draw) for item in value), {"name": "injected", "value": "z"}]))
    return value


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, (*path, index))]
    return [path]


@settings(max_examples=60)
@given(_object, st.data())
def test_defaults_are_no_difference(wanted: dict[str, Any], data: st.DataObject) -> None:
    assert differences(wanted, wanted) == ()
    assert differences(wanted, _defaulted(wanted, data.draw)) == ()


@settings(max_examples=60)
@given(_object, st.data())
def test_any_changed_field_is_found(wanted: dict[str, Any], data: st.DataObject) -> None:
    live = _defaulted(wanted, data.draw)
    leaves = [path for path in _leaves(wanted) if path[-1] != "name"]
    path = data.draw(st.sampled_from(leaves or [()]))
    if not path:
        return
    changed = copy.deepcopy(wanted)
    parent: Any = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = "something else"
    assert differs(changed, live)


@settings(max_examples=60)
@given(_object)
def test_a_digest_follows_the_value_and_not_its_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    assert digest(turned) == digest(value)
    assert canonical(turned) == canonical(value)
    assert digest({**value, "more": 1}) != digest(value)


@settings(max_examples=60)
@given(_object, _object)
def test_an_overlay_is_idempotent_and_wins(base: dict[str, Any], over: dict[str, Any]) -> None:
    before = copy.deepcopy(base)
    merged = overlay_object(base, over)
    assert base == before
    assert overlay_object(merged, over) == merged
    assert differences(over, merged) == (), "everything of the user's is in the result"
