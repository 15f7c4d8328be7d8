"""The context of a handler: its facts and its calls."""
