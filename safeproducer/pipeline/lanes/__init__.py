"""The native producers that records leave by, and how many batch lanes there are."""
