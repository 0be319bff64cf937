"""The codec pipeline of sessions' stores: whole selections at a time instead of chunk by chunk."""
