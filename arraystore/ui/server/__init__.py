"""The server of the page, on the loopback interface."""
