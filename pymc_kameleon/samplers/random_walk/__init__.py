"""Random walks.

``rwm``, ``ram``        RWM, with one scale; RAM
``adaptive``, ``walk``  AM, RBAM, GAM; the walk that they and RAM make
``controlled``          GAM's transition with control variates
"""
