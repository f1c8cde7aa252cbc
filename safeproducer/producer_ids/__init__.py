"""Producer IDs (KIP-936): permits that the processes of a host share, and what is told of who takes them.

`policy/permits.py` decides. `guard.py` is what a producer asks.
"""
