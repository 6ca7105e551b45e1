"""The page that people use: its files, and what the server renders for it."""
