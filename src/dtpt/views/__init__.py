"""The views of an image that test-time tuning looks at."""

from dtpt.views.making import make_views
from dtpt.views.recipe import ViewRecipe

__all__ = ["ViewRecipe", "make_views"]
