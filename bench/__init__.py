"""Measurements against a floor that is taken in the same run."""
