"""What a user types: arguments, pages, exit codes, and nothing else."""
