"""A stream of images that one classifier predicts: what its method carries from image to image."""

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtpt.errors import MethodError, os_error
from dtpt.files import (
    AnyPath,
    as_path,
    canonical_json,
    digest,
    printable,
    read_limited,
    write_atomically,
)
from dtpt.images import ImageSource, open_image
from dtpt.prediction.prediction import Prediction
from dtpt.tuning import initial_state, step_method
from dtpt.tuning.state import pack_state, state_metadata, unpack_state

if TYPE_CHECKING:
    from dtpt.prediction.classifier import Classifier

MOST_BYTES = 1 << 31


class Stream:
    """Predicts images one after the other; made by `Classifier.stream`.

    It belongs to the thread that made it: the predictions of two threads that share one would
    depend on their timing.

    Raises:
        MethodError: The classifier's method carries no state, or another thread calls.
    """

    def __init__(self, classifier: "Classifier") -> None:
        self._classifier = classifier
        self._thread = threading.get_ident()
        self._initial = initial_state(classifier.predictor.tuner, classifier.method)
        self._state: Any = self._initial
        self.images = 0  # that were predicted since the start

    def predict(self, image: ImageSource) -> Prediction:
        """Classify the next image; one that cannot be read changes nothing.

        Raises:
            ImageError: The image cannot be read; the message names it.
        """
        self._check_thread()
        classifier, predictor = self._classifier, self._classifier.predictor
        methods = [classifier.method]
        rendered = predictor.render(open_image(image), methods=methods, seed=classifier.seed)
        views = predictor.features(rendered, methods=methods, seed=classifier.seed)
        outcome, self._state = step_method(
            predictor.tuner, classifier.method, views=views, state=self._state
        )
        self.images += 1
        warning = predictor.ood_warning(rendered.image, views)
        return replace(predictor.prediction(outcome), warning=warning)

    def save(self, path: AnyPath) -> None:
        """Write the state to a file (safetensors), with a hash of what it is valid for."""
        self._check_thread()
        metadata = {"setup": self._setup, "images": str(self.images)}
        target = as_path(path, "state")
        try:
            write_atomically(
                target, pack_state(self._state, initial=self._initial, metadata=metadata)
            )
        except OSError as error:
            raise MethodError(f"Cannot write {printable(target)}: {os_error(error)}.") from error

    def load(self, path: AnyPath) -> None:
        """Go on from a state that `save` wrote.

        Raises:
            MethodError: The file is missing or damaged, or it is of another model, class list,
                method or settings.
        """
        self._check_thread()
        source = as_path(path, "state")
        try:
            data = read_limited(source, MOST_BYTES)
        except OSError as error:
            raise MethodError(f"Cannot read {printable(source)}: {os_error(error)}.") from error
        metadata = state_metadata(data)
        if metadata.get("setup") != self._setup or not metadata.get("images", "").isdecimal():
            raise MethodError(
                f"{printable(source)} is the state of another stream: model, classes, method and "
                "settings must be those with which it was saved."
            )
        self._state = unpack_state(data, initial=self._initial)
        self.images = int(metadata["images"])

    def reset(self) -> None:
        """Forget all images."""
        self._check_thread()
        self._state, self.images = self._initial, 0

    @property
    def _setup(self) -> str:
        setup = self._classifier.setup.model_dump(mode="json")
        return digest(canonical_json({**setup, "seed": self._classifier.seed}))

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise MethodError(
                "This stream belongs to another thread: make one for each with Classifier.stream()."
            )

    def __reduce__(self) -> Any:
        raise MethodError("A stream cannot be pickled: save its state, and load it elsewhere.")
