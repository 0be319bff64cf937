"""How many commits a second one table, or one branch, takes: a model of table formats beside our own code."""
