"""The commands: each file is named by its word and holds its grammar and what it does."""
