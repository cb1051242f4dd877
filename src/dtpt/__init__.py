"""Calibrated test-time prompt tuning for CLIP-like vision-language models."""
