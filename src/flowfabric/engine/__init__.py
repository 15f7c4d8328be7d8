"""How it runs: gather commands, load, decide, save, publish."""
