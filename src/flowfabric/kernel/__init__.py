"""The rules: one pure function per command.

A rule takes the current image of an execution, a command and an instant, and returns a decision:
the reply, the new image and the events. It reads no clock, mints no id and waits for nothing.
"""
