"""KAM and its relatives: proposals by a kernel on the chain's past."""
