"""Pins: the accepted definitions of upstream servers, how they change, and what the lint finds in them."""
