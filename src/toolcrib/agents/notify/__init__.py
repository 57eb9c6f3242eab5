"""Notices to the owner: always published on the feed, and sent to the configured channels (webhook, desktop).

`notifier` publishes notices and manages channels, and `delivery` implements each kind of channel. `approval_notices`
sends notices about pending approvals, and `push_notices` sends them to browsers, encrypted by `web_push`.
"""
