"""Measures this machine: what `ff bench` runs. The report's scenarios are in `benchmarks/`."""
