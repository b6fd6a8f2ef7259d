"""``pk.sample`` and ``pk.compare``: runs, their chains and workers.

``sample``          ``pk.sample``
``new_run``         a run from the user's arguments
``resumed_run``     a run that goes on
``prepared``        what a run begins with
``run``             a run while it draws
``chain_of_run``    one of its chains
``outcome``         its end
``limits``          when it is to end early
``run_costs``       what it will take
``progress``        bars
``workers``         threads, processes and executors
``worker_process``  what is done there
``ctrl_c``          Ctrl-C
``compare``         ``pk.compare``
"""
