"""State and threads: who has accepted what, which lane it is on, and what is alive."""
