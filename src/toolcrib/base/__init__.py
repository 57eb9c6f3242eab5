"""Foundations of all other packages: settings, home, feed, files, processes, network and masking."""
