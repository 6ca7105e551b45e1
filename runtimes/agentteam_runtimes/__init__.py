"""Drivers of coding agents, one folder each, and the processes they live in."""
