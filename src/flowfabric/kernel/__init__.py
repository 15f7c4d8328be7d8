"""What is allowed: one pure rule per command.

A rule takes the present image of an execution, a command and a moment, and returns a decision: the
reply, the new image and the events. It reads no clock, mints no id and waits for nothing.
"""
