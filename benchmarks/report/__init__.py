"""Runs the benchmarks, and writes docs/benchmarks: figures, plots and a page. `scripts/report --help`."""
