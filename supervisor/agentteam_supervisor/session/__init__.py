"""One agent: the pure session machine and the actor around it."""
