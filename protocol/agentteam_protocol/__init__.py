"""What server, daemon and runtimes say to each other: pure data, no I/O."""
