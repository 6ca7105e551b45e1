"""Faults on purpose: named crash points, a random campaign, and an outside checker."""
