"""Tests that run inside the guest: as root, with drives that may be erased.

A module here is collected on the host as any other, but each of its tests runs in the guest, once,
and its outcome there is its outcome here. A module chooses its drives by a tuple DRIVES (see
drives.py); modules with the same drives share one guest, in the state that the last one left.
Fixtures of tests/conftest.py are not there (what they import takes long to import in the guest).
"""
