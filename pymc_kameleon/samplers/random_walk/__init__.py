"""Random walks: RWM in ``rwm``, AM, RBAM and GAM in ``adaptive``."""
