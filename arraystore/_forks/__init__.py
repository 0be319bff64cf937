"""Forks: what one changed, as a payload that travels, and the merge of many of them into their session."""
