"""Real drives: found, claimed, guarded, prepared, asked what they have counted."""
