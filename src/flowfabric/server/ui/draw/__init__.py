"""Drawings: data in, SVG out. The only markup that is made in Python."""
