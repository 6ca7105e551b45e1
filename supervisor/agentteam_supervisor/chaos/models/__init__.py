"""Scripted models on loopback, which real runtimes take for theirs."""
