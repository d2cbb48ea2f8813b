"""Measurements of this package on the machine at hand: `labeltrace bench`."""
