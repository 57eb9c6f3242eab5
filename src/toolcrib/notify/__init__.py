"""Notices to the owner: on the feed always, and to the channels that were set, a webhook or the desktop.

`notifier` tells and keeps the channels, `delivery` knows how each kind is reached. Above: built-in tools, `host`.
Below: the store, `connect` for guarded requests.
"""

from toolcrib.notify.notifier import Delivered, Notifier

__all__ = ["Delivered", "Notifier"]
