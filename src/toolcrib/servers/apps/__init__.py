"""The apps that can connect to this crib, their files, and the entries written into them."""
