"""The views of an image that test-time tuning works on."""

from dtpt.views.make import Views, as_images, contact_sheet, make_views
from dtpt.views.recipe import ViewRecipe

__all__ = ["ViewRecipe", "Views", "as_images", "contact_sheet", "make_views"]
