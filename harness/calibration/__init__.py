"""Calibration of one's own drive: fio jobs on it, fitted to a profile that can be simulated.

    plan = plan_for("sata_ssd", size_bytes)                  # jobs.py: what is run, what it writes
    figures = measure(plan, medium)                          # measure.py: on a drive, with fio
    calibrated = fit(generic_profile(folder, "sata_ssd"), plan, figures)   # fit.py
    write_profile(folder, "my_drive", calibrated, origin)    # profile_file.py

The fit runs the same jobs on the device model in virtual time (simulate.py), beginning with a
generic drive of the class.
"""
