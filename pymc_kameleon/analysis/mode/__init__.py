"""``pk.find_mode``: where the posterior density is largest."""
