"""The option `control_variates` of GAM and GadMALA: what has mean 0 while a chain moves."""
