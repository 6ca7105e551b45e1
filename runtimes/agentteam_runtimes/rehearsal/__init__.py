"""The scripted runtime: a real subprocess with every hostile habit, and its driver."""
