"""What happened: the durable log of every session of one daemon."""
