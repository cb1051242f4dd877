"""What driver and replicas tell each other: small records that can be pickled; no torch.

A *work order* is told once and has all that a replica needs to know. *Batches* of pictures follow,
and *events* come back. Only rows leave a replica.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from dtpt.data.dataset import Sample
from dtpt.methods import ResolvedMethod
from dtpt.tuning.settings import TuningSettings

if TYPE_CHECKING:
    from dtpt.runs.store import Answer
    from dtpt.views import ViewRecipe

Keep = Literal["all", "top5"]


@dataclass(frozen=True)
class TaskOrder:
    """One data set.

    Attributes:
        dataset: Its name.
        classes: Class names, in label order.
        methods: What is evaluated on it; items of batches point into this list.
        recipe: How views are made.
    """

    dataset: str
    classes: tuple[str, ...]
    methods: tuple[ResolvedMethod, ...]
    recipe: "ViewRecipe"


@dataclass(frozen=True)
class WorkOrder:
    """All that a replica needs to know before the first batch.

    Attributes:
        model: Name of the model, for `load_model`.
        fingerprint: Of the model that the driver means.
        device: Where it runs.
        activation: For checkpoints that do not name theirs.
        precision: In which the towers compute.
        threads: torch threads.
        template: Prompt with {}.
        context: (n, W) initial context instead of the template's words.
        settings: Optimiser and selection.
        tasks: The data sets.
        workers: Processes that make views, beside each replica.
        cache: Whether view features are kept.
        keep: Whether rows hold all probabilities or the five largest.
        batch: Pictures that share forward passes of the text tower.
    """

    model: str
    fingerprint: str
    device: str
    activation: Literal["gelu", "quick_gelu"] | None
    precision: Literal["float32", "bfloat16", "float16"]
    threads: int
    template: str
    context: npt.NDArray[np.float32] | None
    settings: TuningSettings
    tasks: tuple[TaskOrder, ...]
    workers: int = 0
    cache: bool = True
    keep: Keep = "all"
    batch: int = 1

    @property
    def depth(self) -> int:
        """Pictures that a replica should have before it, so that it never waits."""
        return max(2, 2 * self.workers + 2, 2 * self.batch)


@dataclass(frozen=True)
class Item:
    """One picture of a batch and the methods (indices into the task's) that lack a row."""

    sample: Sample
    methods: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Pictures of one data set under one seed.

    Attributes:
        number: Every batch has its own.
        task: Index of the data set in the work order.
        seed: Of the views.
        items: The pictures.
        weights: λ of the task's methods that were found without labels, None for the others; empty
            where there is none.
    """

    number: int
    task: int
    seed: int
    items: tuple[Item, ...]
    weights: tuple[float | None, ...] = ()

    @property
    def places(self) -> "tuple[Place, ...]":
        """What it consists of."""
        return tuple(Place(self.number, item.sample.id) for item in self.items)


@dataclass(frozen=True)
class Search:
    """Pictures of one data set from which λ are found, all of them together.

    Attributes:
        number: As of a batch; no batch has the same.
        task: Index of the data set in the work order.
        seed: Of the views.
        samples: The pictures; their labels are not looked at.
        methods: Indices of the task's methods whose λ is to be found.
    """

    number: int
    task: int
    seed: int
    samples: tuple[Sample, ...]
    methods: tuple[int, ...]

    @property
    def places(self) -> "tuple[Place, ...]":
        """What it consists of."""
        return tuple(Place(self.number, sample.id) for sample in self.samples)


@dataclass(frozen=True)
class Place:
    """One picture of one batch, or of one search."""

    batch: int
    sample: str


@dataclass(frozen=True)
class Answered:
    """A picture is done.

    Attributes:
        place: Which one.
        image_key: What is in the picture; "" when it could not be read.
        stamp: How its file looks from outside.
        answers: In the order of the item's methods; empty when it failed.
        failure: Why it cannot be read.
        is_new: Whether the image tower was asked.
        replica: Number of the replica that did it; on a cluster the name of its machine.
    """

    place: Place
    image_key: str = ""
    stamp: str = ""
    answers: "tuple[Answer, ...]" = ()
    failure: str = ""
    is_new: bool = False
    replica: int | str = 0


@dataclass(frozen=True)
class Struck:
    """A process died while it worked on a picture, which may be the reason."""

    place: Place
    reason: str


@dataclass(frozen=True)
class Returned:
    """Pictures that a replica had before it when it died, through no fault of theirs."""

    places: tuple[Place, ...]


@dataclass(frozen=True)
class Found:
    """A search is done.

    Attributes:
        number: Of the search.
        weights: λ in the order of its methods.
        pictures: How many pictures could be read.
    """

    number: int
    weights: tuple[float, ...]
    pictures: int


Event = Answered | Struck | Returned | Found


@dataclass(frozen=True)
class Ready:
    """A replica has loaded its model."""


@dataclass(frozen=True)
class Stopped:
    """A replica cannot go on, and another one could not either."""

    message: str
