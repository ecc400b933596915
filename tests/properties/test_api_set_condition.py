"""set_condition: times move only with the status, and nothing else is touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from equipoise.api.conditions import Condition, ConditionType, find_condition, set_condition

conditions = st.builds(
    Condition,
    type=st.sampled_from(list(ConditionType)),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(["One", "Two"]),
    message=st.text(max_size=20),
    observed_generation=st.integers(min_value=0, max_value=3),
)


def written(sequence: list[Condition]) -> list[Condition]:
    result: list[Condition] = []
    for second, condition in enumerate(sequence):
        result = set_condition(result, condition, f"t{second}")
    return result


@given(st.lists(conditions, max_size=20))
def test_each_type_stands_once_in_the_order_of_its_first_appearance(sequence: list[Condition]) -> None:
    assert [condition.type for condition in written(sequence)] == list(dict.fromkeys(condition.type for condition in sequence))


@given(st.lists(conditions, max_size=20))
def test_the_time_is_that_of_the_last_change_of_status(sequence: list[Condition]) -> None:
    for condition in written(sequence):
        mine = [(second, other.status) for second, other in enumerate(sequence) if other.type == condition.type]
        since = next(
            mine[index][0] for index in range(len(mine) - 1, -1, -1) if index == 0 or mine[index - 1][1] != mine[index][1]
        )
        assert condition.last_transition_time == f"t{since}"


@given(st.lists(conditions, max_size=10), conditions)
def test_everything_but_the_time_is_as_written_and_the_others_are_untouched(sequence: list[Condition], new: Condition) -> None:
    before = written(sequence)
    after = set_condition(before, new, "now")
    found = find_condition(after, new.type)
    assert found is not None
    assert found.model_copy(update={"last_transition_time": ""}) == new
    assert [other for other in after if other.type != new.type] == [other for other in before if other.type != new.type]


@given(st.lists(conditions, max_size=10), conditions)
def test_writing_the_same_again_changes_nothing(sequence: list[Condition], new: Condition) -> None:
    once = set_condition(written(sequence), new, "now")
    assert set_condition(once, new, "later") == once
