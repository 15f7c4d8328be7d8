"""Hooks: what follows the end of an execution, in the transaction of that end."""
