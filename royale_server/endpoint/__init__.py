"""Where clients meet the server: the session core and, around it, the hub and the socket edge."""
