"""The checks of `ff doctor`."""
