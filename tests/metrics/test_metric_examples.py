"""Every public function of the metrics shows how it is called."""

import inspect

from dtpt import metrics


def test_every_public_function_has_an_example() -> None:
    functions = [getattr(metrics, name) for name in metrics.__all__]
    missing = [
        function.__name__
        for function in functions
        if inspect.isfunction(function) and ">>>" not in (function.__doc__ or "")
    ]
    assert missing == []
