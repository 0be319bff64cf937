"""Calculation of what a workload costs: requests and dollars a month, without a request."""
