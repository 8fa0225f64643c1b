"""Private database servers: started by the harness, on a unix socket, for one experiment."""
