"""The client side: profiles, logins, and requests to a server as the person or program of a profile."""
