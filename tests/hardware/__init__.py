"""A lab in a box: tests of the hardware tier in a machine of their own, with drives of their own.

`inside/` holds tests that run in that machine, which QEMU emulates; everything else here runs on
the host and starts it. `tools/install-guest` fetches what it is made from.
"""
