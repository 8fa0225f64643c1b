"""Modelled drives: their profiles, the models, and live devices."""
