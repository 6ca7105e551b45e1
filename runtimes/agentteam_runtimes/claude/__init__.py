"""Claude Code, driven by its stream of JSON lines."""
