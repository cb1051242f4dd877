"""The first half of a prediction: a picture and its views. It needs no model and no torch."""

from dataclasses import dataclass

from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.images import ImageSource, open_image, pixel_digest
from dtpt.views import ViewRecipe, Views, make_views


@dataclass(frozen=True, eq=False)
class Seen:
    """A decoded picture and its views, (N, 3, S, S) pixels; the original view first."""

    picture: Image.Image
    pixels: Views


@dataclass(frozen=True)
class ViewMaker:
    """Makes the views of pictures; they depend on pixels, recipe and seed alone.

    Attributes:
        recipe: how many views, and of what kind.
        seed: of the random views.
        preprocessing: the model's.
    """

    recipe: ViewRecipe
    seed: int
    preprocessing: Preprocess

    def __call__(self, image: ImageSource) -> Seen:
        """Open a picture and make its views.

        Raises:
            ImageError: the picture cannot be read; the message names it.
        """
        picture = open_image(image)
        pixels = make_views(
            picture,
            recipe=self.recipe,
            seed=self.seed,
            image_id=pixel_digest(picture),
            preprocessing=self.preprocessing,
        )
        return Seen(picture, pixels)
