"""What `dtpt eval` does, from Python: `dtpt.evaluate` and `dtpt.load_run`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from dtpt.errors import OptionError, short_repr
from dtpt.files import AnyPath, as_path
from dtpt.options import EvalOptions
from dtpt.runs import runner
from dtpt.runs.reading import Run, open_run

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset


def evaluate(
    dataset: "str | Dataset | Sequence[str] | Sequence[Dataset]",
    *,
    model: "str | Clip" = "pocket",
    method: str | Sequence[str] = ("zero-shot", "tpt", "d-tpt"),
    lambda_: float | Sequence[float] = (),
    seed: int | Sequence[int] = (0,),
    views: int = 64,
    limit: int | None = None,
    template: str = "a photo of a {}.",
    context: AnyPath | None = None,
    output: AnyPath = "runs/latest",
    data_root: AnyPath | None = None,
    partial: bool = False,
    presentation: str | None = None,
    steps: int = 1,
    learning_rate: float = 5e-3,
    weight_decay: float = 0.01,
    rho: float = 0.1,
    entropy: Literal["of-mean", "mean-of"] = "of-mean",
    activation: Literal["gelu", "quick_gelu"] | None = None,
    device: str = "auto",
    precision: Literal["float32", "bfloat16", "float16"] = "float32",
    threads: int | None = None,
    replicas: int | Literal["auto"] = "auto",
    workers: int | Literal["auto"] = "auto",
    batch: int = 1,
    keep: Literal["all", "top5"] = "all",
    engine: str = "local",
    shard: str | None = None,
    max_failures: float = 0.01,
    cache: bool = True,
    fresh: bool = False,
    quiet: bool = False,
) -> Run:
    """Evaluate methods on data sets and return the stored run; the same call again resumes.

    The arguments are the options of `dtpt eval` (`EvalOptions` describes each). `dataset` and
    `model` may also be objects that are in memory already.

    Raises:
        OptionError: a value makes no sense.
        RunError: the folder holds another run, or too many images cannot be read.

    Example:
        >>> run = evaluate("openmoji/food-drink", limit=4, method="zero-shot", quiet=True)
        >>> len(run.records()), sorted(run.records()[0])[:3]
        (4, ['confidence', 'correct', 'dataset'])
    """
    return _evaluate(dict(locals()))


def _evaluate(given: dict[str, Any]) -> Run:
    model, datasets = given["model"], _objects(given["dataset"])
    own = None if isinstance(model, str) else _checked_clip(model)
    if own is not None:
        given["model"] = own.name or "model"
    if datasets is not None:
        given["dataset"] = tuple(one.name for one in datasets)
    return runner.evaluate(EvalOptions.parse(given), model=own, datasets=datasets)


def _objects(dataset: object) -> "list[Dataset] | None":
    """Return data sets that are in memory; None where names are given."""
    from dtpt.data import Dataset

    several = [dataset] if isinstance(dataset, Dataset) else dataset
    if not isinstance(several, list | tuple):
        return None
    found = [one for one in several if isinstance(one, Dataset)]
    if found and len(found) < len(several):
        raise OptionError("dataset has names and data sets; give all as one kind.")
    return found or None


def _checked_clip(model: object) -> "Clip":
    from dtpt.clip.model import Clip

    if not isinstance(model, Clip):
        raise OptionError(f"model must be a name or come from load_model, not {short_repr(model)}.")
    return model


def load_run(path: AnyPath) -> Run:
    """Open a stored run to read it; `Run.records()` and `Run.to_pandas()` give its rows.

    Args:
        path: the folder that `evaluate` or `dtpt eval` wrote, or one SQLite file of it.

    Raises:
        RunError: there is none, it is damaged, or it is still in shards.

    Example:
        >>> made = evaluate(
        ...     "openmoji/food-drink", limit=4, method="zero-shot", output="food", quiet=True
        ... )
        >>> load_run("food").is_complete
        True
    """
    return open_run(as_path(path, "run"))
