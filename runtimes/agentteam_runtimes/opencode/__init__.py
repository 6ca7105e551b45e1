"""The driver of OpenCode."""
