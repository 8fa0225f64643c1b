"""TPC-C (revision 5.11) for a MySQL-protocol server: schema, population, transactions, checks.

    loading.load(address, Population(Scale(warehouses=10)))
    run = driver.run(address, Job(connections=8, processes=2, warm_up_s=10, measured_s=60))
    run.metrics["tpmc"]
    consistency.check(address)

An address is what mysql.connector.connect takes, with the database's name. Nothing here starts a
server. Where this departs from the standard, README-like, is said at the place: a run without
keying and think times has no terminals, and its TpmC is not the standard's.
"""
