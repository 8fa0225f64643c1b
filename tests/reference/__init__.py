"""Slow, obvious models that the fast ones are compared with."""
