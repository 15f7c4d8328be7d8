"""Metrics of one process: counters, gauges and histograms, and their text for Prometheus.

Numbers only: nothing here knows an engine. What is measured is listed in `catalogue`; each process
has a `Registry` of its own, and one that measures nothing has none.
"""
