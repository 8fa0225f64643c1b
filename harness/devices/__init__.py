"""Devices: profiles of modelled ones, and the rules for touching real ones."""
