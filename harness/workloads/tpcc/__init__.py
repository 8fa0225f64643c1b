"""TPC-C (revision 5.11) for a MySQL-protocol server: schema, population, transactions, checks.

    loading.load(address, Population(Scale(warehouses=10)))
    run = driver.run(address, Job(connections=8, processes=2, warm_up_s=10, measured_s=60))
    run.metrics["tpmc"]
    consistency.check(address)

An address is what mysql.connector.connect takes, with the database's name. Nothing here starts a
server.

Where this departs from the standard: without keying and think times (the default) users have no
home warehouse, and TpmC is not bounded by the number of terminals; deliveries run at once rather
than from a queue; names and prices of an order's lines are not sent back to the client; lines are
handled in the order in which stock is locked, with the line numbers that they have. There are no
audit rules, prices, or tests of durability here.
"""
