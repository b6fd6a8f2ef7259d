"""``pk.sample`` and ``pk.compare_samplers``: runs, their chains and workers.

``sample``          ``pk.sample``
``settings``        what a run is told, and a result holds
``new_run``         where new chains begin
``starts_of_run``   at which points
``resumed_run``     where a run goes on
``prepared``        what a run begins with
``run``             a run while it draws
``chain_of_run``    one of its chains
``outcome``         its end
``limits``          when it is to end early
``run_costs``       what it will take
``progress``        bars
``workers``         threads, processes and executors
``worker_process``  what is done there
``without_main``    processes that begin where threads run
``ctrl_c``          Ctrl-C
``compare``         ``pk.compare_samplers``
``evidence``        ``pk.evidence``, ``pk.compare_models``
"""
