"""Random walks: RWM in ``rwm``, RAM in ``ram``, AM, RBAM and GAM in ``adaptive``.

``controls`` has the option `control_variates` of GAM.
"""
