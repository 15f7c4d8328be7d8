"""The server: every operation over HTTP, with the same meaning.

It adds no rule. A route checks the caller, decodes, asks the engine for one operation, encodes.
"""
