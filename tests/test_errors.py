"""Errors of pydantic and of the system become one line in our words."""

from typing import Literal

import pydantic
import pytest

from dtpt.errors import explain, os_error, short_repr


class Inner(pydantic.BaseModel):
    size: int = pydantic.Field(ge=1)


class Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    views: int = pydantic.Field(64, ge=1, le=4096)
    rho: float = 0.1
    workers: int | Literal["auto"] = "auto"
    entropy: Literal["of-mean", "mean-of"] = "of-mean"
    seeds: tuple[int, ...] = pydantic.Field((0,), min_length=1)
    inner: tuple[Inner, ...] = ()
    title: str = pydantic.Field("", pattern="^[a-z]*$")

    @pydantic.field_validator("rho")
    @classmethod
    def _check(cls, value: float) -> float:
        if value == 0:
            raise ValueError("0 keeps no view.")
        return value


def refusal(values):
    with pytest.raises(pydantic.ValidationError) as caught:
        Options.model_validate(values)
    return explain(caught.value)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"views": 0}, "views: must be greater than or equal to 1, got 0"),
        ({"views": "many"}, "views: must be a whole number, got 'many'"),
        ({"views": 1.5}, "views: must be a whole number, got 1.5"),
        ({"rho": None}, "rho: must be a number, got None"),
        ({"rho": 0}, "rho: 0 keeps no view."),
        ({"workers": "all"}, "workers: must be a whole number or 'auto', got 'all'"),
        ({"entropy": 3}, "entropy: must be 'of-mean' or 'mean-of', got 3"),
        ({"seeds": ()}, "seeds: must have at least 1 item, got ()"),
        ({"inner": [{"size": 1}, {"size": 0}]}, "inner.1.size: must be greater than or equal to 1"),
        ({"inner": [{}]}, "inner.0.size: is missing"),
        ({"inner": [4]}, "inner.0: must be an object, got 4"),
        ({"title": "A"}, "title: must match pattern"),
        ({"vews": 3}, "vews: is not a known field"),
        ({"views": "x" * 500}, "views: must be a whole number, got 'xxx"),
        (3, "must be an object, got 3"),
    ],
)
def test_the_first_error_is_one_line_with_field_reason_and_value(values, line):
    explained = refusal(values)
    assert explained.startswith(line.rstrip("."))
    assert len(explained) < 160
    assert not {"Input", "valid", "pydantic"} & set(explained.split())


def test_broken_json_is_explained_without_its_content():
    with pytest.raises(pydantic.ValidationError) as caught:
        Options.model_validate_json('{"views": ' + "9" * 10_000)
    assert "JSON" in explain(caught.value)
    assert len(explain(caught.value)) < 160


def test_reasons_of_the_system_end_without_a_full_stop():
    assert os_error(OSError(28, "No space left on device", "a.csv")) == "No space left on device"
    assert os_error(OSError("gone.")) == "gone"


def test_values_are_short_and_on_one_line():
    assert short_repr("two\nlines") == r"'two\nlines'"
    assert len(short_repr("x" * 1000)) == 80
