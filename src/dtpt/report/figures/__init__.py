"""Figures, one file each: data in, (figure, axes) out."""
